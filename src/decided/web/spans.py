"""Spans for an OpenTelemetry collector: one per request, with its times and no word of what it said.

`opentelemetry` is an extra, and is imported only where an endpoint is set. Where to send, how to sample and what the
service is called is left to the variables that the SDK reads.
"""

import asyncio
import logging
from http import HTTPMethod
from typing import TYPE_CHECKING, Any

from decided import tracing
from decided.engines.api import ModelCard
from decided.extras import install_command
from decided.settings import exports_traces
from decided.version import VERSION
from decided.web.message import HttpRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

log = logging.getLogger("decided")

_METHODS = frozenset(HTTPMethod)
_GRACE_S = 3.0
"""How long the end of the process waits for a collector."""


class Spans:
    """Begins and ends the spans of requests."""

    def __init__(self, card: ModelCard, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = Resource({SERVICE_NAME: "decided", SERVICE_VERSION: VERSION})
        ours = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are heard before us
        if str(ours.attributes[SERVICE_NAME]).startswith("unknown_service"):
            ours = ours.merge(named)
        self._exporter = exporter
        self._provider = TracerProvider(resource=ours, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("decided", VERSION)
        self._propagator = TraceContextTextMapPropagator()
        self._model = {"gen_ai.operation.name": "decide", "gen_ai.provider.name": "decided"}
        self._model["gen_ai.response.model"] = card.name

    def begin(self, request: HttpRequest) -> "Span":
        """Below the client's span, if it named one. What is asked of a remote engine from here on is below ours."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        given = {name: request.headers.get(name.encode(), b"").decode("latin-1") for name in self._propagator.fields}
        parent = self._propagator.extract(given)
        span = self._tracer.start_span("HTTP", parent, SpanKind.SERVER)
        ours: dict[str, str] = {}
        self._propagator.inject(ours, set_span_in_context(span, parent))
        tracing.current.set(tracing.Trace(ours))
        return span

    def end(self, span: "Span", request: HttpRequest, endpoint: str, status: int) -> None:
        from opentelemetry.trace import StatusCode

        known = request.method in _METHODS  # the client may have made it up
        span.update_name(f"{request.method if known else 'HTTP'} {endpoint}")
        found: dict[str, Any] = {
            "http.request.method": request.method if known else "_OTHER",
            "http.route": endpoint,
            "http.response.status_code": status,
            "decided.request_id": request.id,
        }
        if request.questions:
            found |= self._model
            found["gen_ai.usage.input_tokens"] = request.tokens - request.output_tokens
            found["gen_ai.usage.output_tokens"] = request.output_tokens
            found["decided.questions"] = request.questions
        trace = tracing.current.get()
        if trace is not None and trace.queued is not None:
            found["decided.queue_seconds"] = trace.queued
            found["decided.tokenize_seconds"] = sum(trace.encoding)
            found["decided.model_seconds"] = sum(trace.running)
        span.set_attributes(found)
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    async def close(self) -> None:
        """Send what is left; to a collector that does not answer, not for long."""
        closing = asyncio.create_task(asyncio.to_thread(self._provider.shutdown))
        await asyncio.wait([closing], timeout=_GRACE_S)
        if not closing.done():
            await asyncio.to_thread(self._exporter.shutdown)  # it stops trying, and so the other ends
        await closing


def open_spans(card: ModelCard) -> Spans | None:
    """Where the environment names a collector, and the extra is there to speak to it."""
    if not exports_traces():
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError:
        log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but there are no traces without %s", install_command("otel"))
        return None
    return Spans(card, OTLPSpanExporter())
