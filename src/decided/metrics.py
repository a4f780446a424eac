"""The metrics, on a registry of their own."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from decided.contract import Usage
from decided.worker import BatchReport

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_QUESTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
_FILL = (0.1, 0.25, 0.5, 0.75, 0.9, 1)

_REASONS = {400: "unreadable", 401: "unauthorized", 413: "too_large", 415: "unsupported", 422: "invalid"}
_REASONS |= {503: "unavailable", 504: "timed_out"}


class Metrics:
    """Counts what the service does. Only answers enter the latency histogram: refusals are quick and would flatter."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "service_requests", "Requests, by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "service_request_seconds",
            "Seconds from request to answer, of answered requests.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._rejected = Counter("service_rejected", "Requests refused, by reason.", ["reason"], registry=registry)
        self._questions = Counter("service_questions", "Questions answered.", registry=registry)
        self._tokens = Counter("service_tokens", "Tokens read and written.", ["direction"], registry=registry)
        self._input_tokens = self._tokens.labels("input")
        self._output_tokens = self._tokens.labels("output")
        self.truncations = Counter(
            "service_truncations", "Answers whose input was cut to fit the model.", registry=registry
        )
        self._batch_questions = Histogram(
            "service_batch_questions", "Questions that ran together.", buckets=_QUESTIONS, registry=registry
        )
        self._batch_fill = Histogram(
            "service_batch_fill_ratio", "Cost of a batch against the token budget.", buckets=_FILL, registry=registry
        )
        self._queue_wait = Histogram(
            "service_queue_wait_seconds",
            "Seconds from a request's last byte to its first batch.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge("service_in_flight", "Requests admitted and not yet answered.", registry=registry)
        self._queue_depth = Gauge("service_queue_depth", "Questions admitted and not yet begun.", registry=registry)
        self._load = Gauge("service_model_load_seconds", "Seconds it took to load the model.", registry=registry)
        self._build = Gauge(
            "service_build_info", "Always 1; the labels say what runs.", ["version", "model"], registry=registry
        )

    def describe(
        self,
        version: str,
        model: str,
        load_seconds: float,
        in_flight: Callable[[], int],
        queue_depth: Callable[[], int],
    ) -> None:
        """What is known once the model is loaded."""
        self._build.labels(version, model).set(1)
        self._load.set(load_seconds)
        self._in_flight.set_function(in_flight)
        self._queue_depth.set_function(queue_depth)

    def replied(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(endpoint, str(status)).inc()
        if status < 400:
            self._seconds.labels(endpoint).observe(seconds)
        elif status in _REASONS:
            self._rejected.labels(_REASONS[status]).inc()

    def decided(self, questions: int, usage: Usage) -> None:
        self._questions.inc(questions)
        self._input_tokens.inc(usage.input_tokens)
        self._output_tokens.inc(usage.output_tokens)

    def batch(self, report: BatchReport) -> None:
        self._batch_questions.observe(report.questions)
        self._batch_fill.observe(report.fill)
        for seconds in report.waits:
            self._queue_wait.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
