"""The metrics: plain numbers, changed on the event loop alone, made into Prometheus families when somebody asks.

Counting in the client library takes a lock and a loop over the buckets at every call, ten times the cost of this.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from decided.serving.worker import BatchReport

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_QUESTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
_CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_FILL = (0.1, 0.25, 0.5, 0.75, 0.9, 1)


class Histogram:
    """How often a value fell into each bucket, and the sum of all."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Iterable[str] = ()) -> None:
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        family.add_metric(list(labels), list(zip(names, accumulate(self._counts), strict=True)), self._sum)


class ProfileCounts:
    """What one profiled question's answers were like, and how those turned out whose outcome was told."""

    def __init__(self) -> None:
        self.options: Counter[int] = Counter()
        self.confidence = Histogram(_CONFIDENCE)
        self.top = self.brier = 0.0
        self.right = self.wrong = self.undecided = 0

    def answer(self, option: int, top: float, confidence: float, decided: bool | None) -> None:
        self.options[option] += 1
        self.top += top
        self.confidence.observe(confidence)
        self.undecided += decided is False

    def settle(self, shares: Sequence[float], right: int) -> None:
        """An outcome: the shares that were sent, and the option that was right."""
        hit = shares.index(max(shares)) == right
        self.right += hit
        self.wrong += not hit
        self.brier += sum((share - (option == right)) ** 2 for option, share in enumerate(shares))


class Metrics(Collector):
    """Counts what the service does. Only answers enter the latency histogram: refusals are quick and would flatter."""

    def __init__(self, by_client: bool = False) -> None:
        self._by_client = by_client
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests: Counter[tuple[str, int, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._questions = self._input_tokens = self._output_tokens = self._truncations = 0
        self._batch_questions = Histogram(_QUESTIONS)
        self._batch_fill = Histogram(_FILL)
        self._queue_wait = Histogram(_SECONDS)
        self._profiles: dict[str, ProfileCounts] = {}
        self._audited: Callable[[], tuple[int, int]] | None = None
        self._shadowed: Counter[tuple[str, str]] = Counter()
        self._version = self._model = ""
        self._load_seconds = 0.0
        self._in_flight: Callable[[], int] = int
        self._queue_depth: Callable[[], int] = int

    def loaded(
        self,
        version: str,
        model: str,
        load_seconds: float,
        in_flight: Callable[[], int],
        queue_depth: Callable[[], int],
    ) -> None:
        """What is known once the model is loaded."""
        self._version, self._model, self._load_seconds = version, model, load_seconds
        self._in_flight, self._queue_depth = in_flight, queue_depth

    def audited(self, lines: Callable[[], tuple[int, int]]) -> None:
        """There is an audit log: how to learn how many lines it has written, and lost."""
        self._audited = lines

    def replied(self, endpoint: str, status: int, seconds: float, client: str = "") -> None:
        self._requests[endpoint, status, client] += 1
        if status < 400:
            if endpoint not in self._seconds:
                self._seconds[endpoint] = Histogram(_SECONDS)
            self._seconds[endpoint].observe(seconds)

    def refused(self, reason: str) -> None:
        self._refusals[reason] += 1

    def decided(self, questions: int, input_tokens: int, output_tokens: int) -> None:
        self._questions += questions
        self._input_tokens += input_tokens
        self._output_tokens += output_tokens

    def truncated(self) -> None:
        self._truncations += 1

    def profiled(self, label: str) -> ProfileCounts:
        """The counts of a profiled question. There are as many labels as profiles were ever loaded."""
        if label not in self._profiles:
            self._profiles[label] = ProfileCounts()
        return self._profiles[label]

    def shadowed(self, profile: str, result: str) -> None:
        """What came of asking the second model."""
        self._shadowed[profile, result] += 1

    def batch(self, report: BatchReport) -> None:
        self._batch_questions.observe(report.questions)
        self._batch_fill.observe(report.fill)
        for seconds in report.waits:
            self._queue_wait.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families, for the registry."""
        labels = ["endpoint", "status", "client"] if self._by_client else ["endpoint", "status"]
        requests = CounterMetricFamily("service_requests", "Requests, by endpoint and status.", labels=labels)
        rejected = CounterMetricFamily("service_rejected", "Requests refused, by reason.", labels=["reason"])
        for (endpoint, status, client), number in self._requests.items():
            requests.add_metric([endpoint, str(status), client][: len(labels)], number)
        for reason, number in self._refusals.items():
            rejected.add_metric([reason], number)
        seconds = HistogramMetricFamily(
            "service_request_seconds", "Seconds from request to answer, of answered requests.", labels=["endpoint"]
        )
        for endpoint, histogram in self._seconds.items():
            histogram.add_to(seconds, [endpoint])
        tokens = CounterMetricFamily("service_tokens", "Tokens read and written.", labels=["direction"])
        tokens.add_metric(["input"], self._input_tokens)
        tokens.add_metric(["output"], self._output_tokens)
        build = GaugeMetricFamily(
            "service_build_info", "Always 1; the labels say what runs.", labels=["version", "model"]
        )
        build.add_metric([self._version, self._model], 1)
        yield from (requests, rejected, seconds, tokens, build)
        yield CounterMetricFamily("service_questions", "Questions answered.", value=self._questions)
        yield CounterMetricFamily(
            "service_truncations", "Answers whose input was cut to fit the model.", value=self._truncations
        )
        yield GaugeMetricFamily("service_in_flight", "Requests admitted and not yet answered.", value=self._in_flight())
        yield GaugeMetricFamily(
            "service_queue_depth", "Questions admitted and not yet begun.", value=self._queue_depth()
        )
        yield GaugeMetricFamily(
            "service_model_load_seconds", "Seconds it took to load the model.", value=self._load_seconds
        )
        for name, about, histogram in (
            ("service_batch_questions", "Questions that ran together.", self._batch_questions),
            ("service_batch_fill_ratio", "Cost of a batch against the token budget.", self._batch_fill),
            ("service_queue_wait_seconds", "Seconds from a request's last byte to its first batch.", self._queue_wait),
        ):
            family = HistogramMetricFamily(name, about)
            histogram.add_to(family)
            yield family
        if self._audited is not None:
            written, lost = self._audited()
            yield CounterMetricFamily("service_audit_lines", "Decisions in the audit log.", value=written)
            yield CounterMetricFamily("service_audit_lost", "Decisions missing in the audit log.", value=lost)
        if self._profiles:
            yield from self._of_profiles()
        if self._shadowed:
            shadowed = CounterMetricFamily(
                "service_shadow_answers", "What the second model said to answers.", labels=["profile", "result"]
            )
            for pair, number in self._shadowed.items():
                shadowed.add_metric(pair, number)
            yield shadowed

    def _of_profiles(self) -> Iterator[Metric]:
        answers = CounterMetricFamily(
            "service_profile_answers",
            "Answers with a profile, by the number of the option.",
            labels=["profile", "option"],
        )
        outcomes = CounterMetricFamily(
            "service_profile_outcomes", "Outcomes told, right or wrong.", labels=["profile", "result"]
        )
        top = CounterMetricFamily(
            "service_profile_top_probability", "The sum of the top options' probabilities.", labels=["profile"]
        )
        brier = CounterMetricFamily("service_profile_brier", "The sum of the Brier scores.", labels=["profile"])
        undecided = CounterMetricFamily(
            "service_profile_undecided", "Answers below the profile's threshold.", labels=["profile"]
        )
        confidence = HistogramMetricFamily(
            "service_profile_confidence", "The confidence of answers with a profile.", labels=["profile"]
        )
        for label, counts in self._profiles.items():
            for option, number in sorted(counts.options.items()):
                answers.add_metric([label, str(option)], number)
            outcomes.add_metric([label, "right"], counts.right)
            outcomes.add_metric([label, "wrong"], counts.wrong)
            top.add_metric([label], counts.top)
            brier.add_metric([label], counts.brier)
            undecided.add_metric([label], counts.undecided)
            counts.confidence.add_to(confidence, [label])
        yield from (answers, outcomes, top, brier, undecided, confidence)
