# syntax=docker/dockerfile:1

# To pin the base by its digest as well: docker build --build-arg BASE=python:3.12-slim@sha256:...
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements-build.lock requirements-runtime.lock ./
# Two environments: one that builds the wheel and stays here, one that is shipped and has no pip.
RUN python -m pip install --require-hashes --requirement requirements-build.lock \
    && python -m venv --without-pip /opt/decided \
    && python -m pip --python /opt/decided/bin/python install --require-hashes --requirement requirements-runtime.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY models models
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir wheels . ./models/base \
    && python -m pip --python /opt/decided/bin/python install --no-deps --no-index wheels/*.whl

FROM ${BASE}
COPY --from=build /opt/decided /opt/decided
ENV PATH=/opt/decided/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
# By number, so that Kubernetes can tell that it is not root. Nothing need be written: the root file system may be read-only.
USER 65532:65532
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=8s --start-period=60s --retries=3 CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('SERVICE_PORT', '8000')), timeout=7); c.request('GET', '/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["decided"]
CMD ["serve"]
