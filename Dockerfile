# The image of gputally: Python, the package, the libraries they need, and no shell.
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REPOSITORY:TAG --push .
# The NVIDIA driver's library is never in it: the container runtime or a mount brings the node's own.
ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY requirements requirements
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE} AS content
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
COPY requirements/run.txt /tmp/run.txt
COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: -r /tmp/run.txt \
    && pip install --no-cache-dir --disable-pip-version-check --no-deps /tmp/wheels/*.whl \
    && rm -rf /usr/local/lib/python3*/site-packages/{pip,setuptools,wheel}{,-*} \
        /usr/local/bin/{pip*,wheel} /tmp/run.txt /tmp/wheels
# Everything that Python and its modules are linked to, and four libraries that NVIDIA's are.
RUN mkdir -p /content/etc/ssl/certs /content/usr/lib /content/usr/lib64 /content/proc /content/dev /content/sys \
    && ln -s usr/lib /content/lib && ln -s usr/lib64 /content/lib64 \
    && python3 -c 'import pathlib, sysconfig; print(*map(pathlib.Path(sysconfig.get_path("stdlib")).joinpath, \
        ("test", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3", "pydoc_data")))' | xargs rm -rf \
    && cp -a --parents /usr/local/bin /usr/local/lib /content \
    && { find /usr/local -type f \( -name '*.so*' -o -name 'python3*' \) -exec ldd {} + 2>/dev/null || true; } \
        | grep -o '/[^ ():]*\.so[^ ():]*' | grep -v '^/usr/local/' | sort -u | xargs cp -L --parents -t /content \
    && find /lib/ \( -name libdl.so.2 -o -name libpthread.so.0 -o -name librt.so.1 -o -name libm.so.6 \) \
        -exec cp -L --parents -t /content {} + \
    && cp -a --parents /etc/debian_version /etc/ld.so.* /etc/ssl/certs/ca-certificates.crt /content \
    && printf 'root:x:0:0::/:/none\ngputally:x:65532:65532::/:/none\n' > /content/etc/passwd \
    && printf 'root:x:0:\ngputally:x:65532:\n' > /content/etc/group

FROM scratch
COPY --from=content /content /
ENV PATH=/usr/local/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
LABEL org.opencontainers.image.title=gputally \
      org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532
EXPOSE 10400
ENTRYPOINT ["/usr/local/bin/gputally"]
CMD ["serve"]
