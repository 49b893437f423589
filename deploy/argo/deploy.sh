#!/bin/sh
# Brings gputally into a cluster through Argo CD; run again, it changes only what differs.
set -eu

usage() {
    cat <<'TEXT'
usage: deploy.sh --repo-url URL --image REPOSITORY:TAG [options]

  --repo-url URL           the git repository with this folder, as Argo CD reads it
  --image REPOSITORY:TAG   the image you built from the Dockerfile
  --revision REVISION      branch, tag or commit (default: HEAD)
  --values NAME            a file of deploy/values/ without .yaml (default: attribution; on GKE: gke)
  --namespace NAME         where gputally runs (default: gputally)
  --argocd-namespace NAME  where Argo CD runs (default: argocd)
  --wait SECONDS           how long to wait until it is synced and healthy; 0 not to (default: 300)
  --dry-run                print what would be applied, and ask the cluster nothing
TEXT
}

repo_url='' image='' revision=HEAD values=attribution namespace=gputally argocd=argocd wait=300 dry_run=''
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

main() {
    read_options "$@"
    check_options
    if [ -n "$dry_run" ]; then
        application
        return
    fi
    check_cluster
    application | kubectl apply --server-side --force-conflicts --field-manager=gputally-deploy -f - ||
        fail "the Application was refused; what Kubernetes said is above"
    wait_until_healthy
    echo "gputally is deployed. See it: kubectl -n $namespace exec daemonset/gputally -- gputally show"
}

read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) usage && exit 0 ;;
        --dry-run) dry_run=yes && shift && continue ;;
        --repo-url | --image | --revision | --values | --namespace | --argocd-namespace | --wait) ;;
        *) misuse "there is no option $1" ;;
        esac
        [ $# -ge 2 ] || misuse "$1 needs a value"
        case $1 in
        --repo-url) repo_url=$2 ;;
        --image) image=$2 ;;
        --revision) revision=$2 ;;
        --values) values=$2 ;;
        --namespace) namespace=$2 ;;
        --argocd-namespace) argocd=$2 ;;
        --wait) wait=$2 ;;
        esac
        shift 2
    done
}

check_options() {
    [ -n "$repo_url" ] || misuse "--repo-url is missing"
    [ -n "$image" ] || misuse "--image is missing"
    plain --repo-url "$repo_url" && plain --image "$image" && plain --revision "$revision"
    name --values "$values" && name --namespace "$namespace" && name --argocd-namespace "$argocd"
    case ${image##*/} in
    *@*) misuse "--image $image has a digest; name a tag here, and pin the digest in the values" ;;
    ?*:?*) ;;
    *) misuse "--image $image has no tag; write REPOSITORY:TAG" ;;
    esac
    case $wait in
    '' | *[!0-9]*) misuse "--wait $wait is not a number of seconds" ;;
    esac
    [ -f "$here/../values/$values.yaml" ] ||
        misuse "--values $values: there is no deploy/values/$values.yaml; there are: $(there_are)"
}

plain() {
    case $2 in
    *[!A-Za-z0-9@:/._~+-]*) misuse "$1 $2 has a character that cannot be in it" ;;
    esac
}

name() {
    case $2 in
    '' | *[!a-z0-9-]*) misuse "$1 '$2' is not a name: lower case letters, digits and - only" ;;
    esac
}

there_are() {
    for file in "$here"/../values/*.yaml; do
        file=${file##*/}
        printf '%s ' "${file%.yaml}"
    done
}

application() {
    sed -e "s|@REPO_URL@|$repo_url|" -e "s|@REVISION@|$revision|" -e "s|@VALUES@|$values|" \
        -e "s|@IMAGE_REPOSITORY@|${image%:*}|" -e "s|@IMAGE_TAG@|${image##*:}|" \
        -e "s|@NAMESPACE@|$namespace|" -e "s|@ARGOCD_NAMESPACE@|$argocd|" \
        -e '/^# /d' "$here/application.yaml"
}

check_cluster() {
    command -v kubectl >/dev/null || fail "kubectl is not installed, or not on the PATH"
    kubectl version >/dev/null 2>&1 || fail "kubectl cannot reach the cluster: try kubectl cluster-info"
    kubectl get crd applications.argoproj.io >/dev/null 2>&1 ||
        fail "the cluster has no Application kind: install Argo CD first, or use helm install (docs/INSTALL.md)"
    kubectl get namespace "$argocd" >/dev/null 2>&1 ||
        fail "there is no namespace $argocd: tell --argocd-namespace where Argo CD runs"
    kubectl auth can-i patch applications.argoproj.io --namespace "$argocd" >/dev/null 2>&1 ||
        fail "you may not change Applications in namespace $argocd"
}

wait_until_healthy() {
    [ "$wait" -gt 0 ] || return 0
    for state in sync.status=Synced health.status=Healthy; do
        kubectl wait "applications.argoproj.io/gputally" --namespace "$argocd" --timeout "${wait}s" \
            --for "jsonpath={.status.${state%=*}}=${state#*=}" ||
            fail "not ${state#*=} after $wait s: kubectl -n $argocd describe applications.argoproj.io gputally"
    done
}

misuse() {
    echo "deploy.sh: $1; see deploy.sh --help" >&2
    exit 2
}

fail() {
    echo "deploy.sh: $1" >&2
    exit 1
}

main "$@"
