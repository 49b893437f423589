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
COPY requirements/run.txt /tmp/run.txt
COPY tools/image_content.py /tmp/image_content.py
COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: -r /tmp/run.txt \
    && pip install --no-cache-dir --disable-pip-version-check --no-deps /tmp/wheels/*.whl \
    && python3 /tmp/image_content.py /content

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
