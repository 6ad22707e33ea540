# syntax=docker/dockerfile:1
# The bridge and the outpost for docker-compose.yml; homeassistant/app/ has an image of its own.
FROM python:3.13-slim-trixie AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY clusterllm_mqtt/ clusterllm_mqtt/
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim-trixie

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

COPY requirements.lock /requirements.lock
RUN pip install --require-hashes --no-deps --only-binary :all: -r /requirements.lock

COPY --from=build /wheels/ /wheels/
RUN pip install --no-deps --no-index /wheels/*.whl \
 && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent \
      --shell /usr/sbin/nologin clusterllm

COPY docker/entry.py docker/health.py /usr/local/lib/clusterllm-mqtt/
COPY docker/clusterllm.yaml /etc/clusterllm-mqtt/clusterllm.yaml

USER 10001
HEALTHCHECK --interval=60s --timeout=20s --start-period=90s --retries=3 \
  CMD ["python3", "/usr/local/lib/clusterllm-mqtt/health.py", "bridge", "/etc/clusterllm-mqtt/clusterllm.yaml"]
ENTRYPOINT ["python3", "/usr/local/lib/clusterllm-mqtt/entry.py"]
CMD ["bridge", "/etc/clusterllm-mqtt/clusterllm.yaml"]
