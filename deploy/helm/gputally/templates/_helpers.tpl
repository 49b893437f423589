{{- define "gputally.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gputally.fullname" -}}
{{- $name := include "gputally.name" . -}}
{{- $own := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{ .Values.fullnameOverride | default $own | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gputally.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "gputally.fullname" .) "default") }}
{{- end }}

{{- define "gputally.selector" -}}
app.kubernetes.io/name: {{ include "gputally.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gputally.labels" -}}
{{ include "gputally.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "gputally.image" -}}
{{ .Values.image.repository }}{{ .Values.image.digest | empty | ternary (printf ":%s" .Values.image.tag) (printf "@%s" .Values.image.digest) }}
{{- end }}

{{/* "yes" if pods get names from the source that is asked for, else nothing. */}}
{{- define "gputally.named" -}}
{{- $names := kindIs "string" .root.Values.names | ternary (list .root.Values.names) .root.Values.names -}}
{{- if and (eq .root.Values.profile "attribution") (has .by $names) }}yes{{ end }}
{{- end }}

{{/* "yes" if the label of the node is watched, so that the pod yields and stays. */}}
{{- define "gputally.yields" -}}
{{- if and .Values.pause.label (eq .Values.pause.by "yield") }}yes{{ end }}
{{- end }}

{{- define "gputally.token" -}}
{{ include "gputally.named" (dict "root" . "by" "api") }}{{ include "gputally.named" (dict "root" . "by" "kubelet") }}{{ include "gputally.yields" . }}
{{- end }}

{{/* Nodes with any of nodeLabels on which, where the pod is evicted by it, the pause label is "true" or missing. */}}
{{- define "gputally.nodeTerms" -}}
{{- $places := list -}}
{{- range .Values.nodeLabels -}}
{{- $label := splitn "=" 2 . -}}
{{- $with := printf "{key: %s, operator: In, values: [%s]}" $label._0 ($label._1 | quote) -}}
{{- $places = append $places (empty $label._1 | ternary (printf "{key: %s, operator: Exists}" $label._0) $with) -}}
{{- end -}}
{{- $times := list -}}
{{- if and .Values.pause.label (eq .Values.pause.by "evict") -}}
{{- $times = list (printf "{key: %s, operator: In, values: [\"true\"]}" .Values.pause.label) (printf "{key: %s, operator: DoesNotExist}" .Values.pause.label) -}}
{{- end -}}
{{- range $place := $places | default (list "") -}}
{{- range $time := $times | default (list "") -}}
{{- with compact (list $place $time) }}
- matchExpressions: [{{ join ", " . }}]
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What no schema can say in plain words. */}}
{{- define "gputally.check" -}}
{{- $v := .Values -}}
{{- if eq $v.profile "device-only" -}}
{{- if not (has $v.gpu.access (list "runtimeClass" "cdi")) -}}
{{- fail (printf "profile device-only mounts nothing of the node, so gpu.access %s cannot be used; use runtimeClass or cdi, or profile attribution" $v.gpu.access) -}}
{{- end -}}
{{- if or $v.mig.monitor $v.accounting.enable $v.state.directory $v.textfile.directory $v.hostPort -}}
{{- fail "profile device-only has no rights, so mig.monitor, accounting.enable, state.directory, textfile.directory and hostPort cannot be used; use profile attribution" -}}
{{- end -}}
{{- end -}}
{{- if and (has $v.gpu.access (list "hostDriver" "privileged")) (not $v.gpu.hostDriver.path) -}}
{{- fail (printf "gpu.access %s needs gpu.hostDriver.path, the folder of the node with the driver's libraries, such as /home/kubernetes/bin/nvidia on GKE" $v.gpu.access) -}}
{{- end -}}
{{- end }}

{{/* The rights of a container: none, or what was asked for. */}}
{{- define "gputally.securityContext" -}}
{{- $add := .add -}}
{{- with .root.Values -}}
{{- if eq .gpu.access "privileged" -}}
privileged: true
{{- else -}}
privileged: false
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  {{- if $add }}
  add: [SYS_ADMIN]
  {{- end }}
{{- end }}
readOnlyRootFilesystem: true
{{- end }}
{{- end }}

{{- define "gputally.environment" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
{{- if include "gputally.named" (dict "root" . "by" "kubelet") }}
- {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
{{- end }}
{{- with .Values }}
{{- if has .gpu.access (list "runtimeClass" "volumeMounts" "cdi") }}
- name: NVIDIA_VISIBLE_DEVICES
  value: {{ get (dict "runtimeClass" "all" "volumeMounts" "/var/run/nvidia-container-devices" "cdi" .gpu.cdiDevice) .gpu.access }}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- if .mig.monitor }}
- {name: NVIDIA_MIG_MONITOR_DEVICES, value: all}
{{- end }}
{{- else }}
- {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/{{ .gpu.hostDriver.libraries }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "gputally.arguments" -}}
- --web.listen-address=:{{ .Values.port }}
- --web.telemetry-path={{ .Values.path }}
{{- if eq .Values.profile "device-only" }}
- --kubernetes=off
{{- else }}
- --kubernetes=on
- --kubelet.root={{ .Values.kubelet.root }}
- --kubernetes.api={{ include "gputally.named" (dict "root" . "by" "api") | empty | ternary "off" "auto" }}
{{- if include "gputally.named" (dict "root" . "by" "kubelet") }}
- --kubelet.url=https://$(HOST_IP):10250
- --kubelet.insecure={{ .Values.kubelet.insecure | ternary "on" "off" }}
{{- end }}
{{- if include "gputally.named" (dict "root" . "by" "cri") }}
- --cri.socket={{ .Values.cri.socket }}
{{- end }}
{{- end }}
{{- if include "gputally.yields" . }}
- --kubernetes.pause-label={{ .Values.pause.label }}
{{- end }}
{{- with .Values.state.directory }}
- --state.directory={{ . }}
{{- end }}
{{- with .Values.textfile.directory }}
- --textfile.directory={{ . }}
{{- end }}
{{- if .Values.web.configSecret }}
- --web.config.file=/etc/gputally/web-config.yml
{{- end }}
{{- range $flag, $value := .Values.settings }}
- {{ printf "--%s=%v" $flag (kindIs "bool" $value | ternary (eq (toString $value) "true" | ternary "on" "off") $value) | quote }}
{{- end }}
{{- end }}

{{/* One row per mount: name, path in the node, path in the container, type, and "write" for those that are. */}}
{{- define "gputally.mounts" -}}
{{- $root := . -}}
{{- $rows := list -}}
{{- if eq .Values.profile "attribution" -}}
{{- $rows = append $rows (dict "name" "pod-resources" "host" (printf "%s/pod-resources" .Values.kubelet.root)) -}}
{{- if include "gputally.named" (dict "root" $root "by" "logs") -}}
{{- $rows = append $rows (dict "name" "pod-logs" "host" "/var/log/pods") -}}
{{- $rows = append $rows (dict "name" "container-logs" "host" "/var/log/containers") -}}
{{- end -}}
{{- if include "gputally.named" (dict "root" $root "by" "podsApi") -}}
{{- $rows = append $rows (dict "name" "pods-api" "host" (printf "%s/pods-api" .Values.kubelet.root)) -}}
{{- end -}}
{{- if include "gputally.named" (dict "root" $root "by" "cri") -}}
{{- $rows = append $rows (dict "name" "cri" "host" (dir .Values.cri.socket)) -}}
{{- end -}}
{{- if eq .Values.gpu.access "volumeMounts" -}}
{{- $rows = append $rows (dict "name" "all-gpus" "host" "/dev/null" "inside" "/var/run/nvidia-container-devices/all" "type" "CharDevice") -}}
{{- end -}}
{{- if has .Values.gpu.access (list "hostDriver" "privileged") -}}
{{- $rows = append $rows (dict "name" "driver" "host" .Values.gpu.hostDriver.path "inside" "/usr/local/nvidia") -}}
{{- end -}}
{{- with .Values.state.directory -}}
{{- $rows = append $rows (dict "name" "state" "host" . "type" "DirectoryOrCreate" "write" true) -}}
{{- end -}}
{{- with .Values.textfile.directory -}}
{{- $rows = append $rows (dict "name" "textfile" "host" . "type" "DirectoryOrCreate" "write" true) -}}
{{- end -}}
{{- end -}}
{{- toJson $rows -}}
{{- end }}
