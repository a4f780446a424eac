"""The report as one page: HTML and SVG in one file that asks nothing of the network, light or dark as the reader is."""

from collections.abc import Sequence
from html import escape

from decided.evaluation import svg
from decided.evaluation.report import EXPLAINED, Mistake, Report, Section, SectionScores, interval, parts_of, short

_MISTAKES_SHOWN = 100
_RELIABILITY = (
    "Across, how sure the model is; upwards, how often it is right. On the dashed line both agree. Lines up and down "
    f"are ranges of 95 %; hollow marks have fewer than {svg.FEW} rows."
)
_CONFIDENCE = "How many answers have which confidence."
_COVERAGE = "Across, the share of answers taken, the most confident first; upwards, how many of those are right."

_STYLE = f"""
:root {{ color-scheme: light dark; {svg.LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {svg.DARK} }} }}
{svg.STYLE}"""
_STYLE += """\
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1040px;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
p, figcaption { color: var(--quiet); margin: .25rem 0; } .plots { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .85rem; max-width: 300px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th { font-weight: 600; color: var(--quiet); } th:first-child, td:first-child { text-align: left; }
.a { color: var(--a); } .b { color: var(--b); }
.cell { background: color-mix(in srgb, var(--a) var(--share), transparent); }
.verdict { border-left: 4px solid var(--a); padding: .25rem 0 .25rem 1rem; margin: 1rem 0; }
.verdict p { color: var(--ink); font-size: 1.05rem; } .verdict .next { color: var(--quiet); font-size: .95rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
.wrong td { text-align: left; vertical-align: top; } .wrong th { text-align: left; }
.wrong td:last-child { min-width: 18rem; overflow-wrap: anywhere; } svg { max-width: 100%; height: auto; }
@media (max-width: 600px) {
  body { margin: 1rem auto; } h1 { font-size: 1.25rem; } th, td { padding: .25rem .45rem; }
  .wrong, .wrong tbody { display: block; } .wrong tr:first-child { display: none; }
  .wrong tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .wrong td { border: none; padding: 0; overflow-wrap: anywhere; }
  .wrong td:last-child { flex-basis: 100%; min-width: 0; }
  .wrong td:not(:last-child)::before { content: attr(data-name) " "; color: var(--quiet); }
}
"""


def html(report: Report) -> str:
    title = escape(report.title)
    body = "".join(_section(section, report) for section in report.sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n{_verdict(report)}{_facts(report)}{body}{_explained()}</body>\n</html>\n"
    )


def _verdict(report: Report) -> str:
    said = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in report.verdict)
    steps = "".join(f'<p class="next">Next: {escape(step)}</p>\n' for step in report.next_steps)
    return f'<div class="verdict">\n{said}{steps}</div>\n'


def _facts(report: Report) -> str:
    facts = {
        "date": report.date,
        "labels": f"{report.labels}, {report.counted}",
        "model": report.model,
        "against": report.against if report.against != report.model else "",
        "settings": ", ".join(report.settings) or "as they are by default",
    }
    told = "".join(f"<dt>{name}</dt><dd>{escape(value or '')}</dd>\n" for name, value in facts.items() if value)
    return f"<dl>\n{told}</dl>\n"


def _explained() -> str:
    told = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>\n" for name, meaning in EXPLAINED.items())
    return f"<section>\n<h2>What the figures mean</h2>\n<dl>\n{told}</dl>\n</section>\n"


def _section(section: Section, report: Report) -> str:
    parts = parts_of(report, section)
    kind = f" <small>({section.type})</small>" if section.type else ""
    plots = _figure("Reliability", _RELIABILITY, svg.reliability([part.bins for _, part in parts]))
    plots += _figure("Confidence", _CONFIDENCE, svg.histogram([part.histogram for _, part in parts]))
    plots += _figure("Coverage", _COVERAGE, svg.curves([part.curve for _, part in parts]))
    tables = "".join(
        f"<h3>Confusion of {escape(name)}</h3>\n{_confusion(section.options, part)}"
        for name, part in parts
        if part.confusion is not None
    )
    return (
        f"<section>\n<h2>{escape(short(section.title, 200))}{kind}</h2>\n{_figures(parts)}{_comparison(section)}"
        f'<div class="plots">\n{plots}</div>\n{_thresholds(parts)}{tables}{_mistakes(section, report)}</section>\n'
    )


def _figures(parts: Sequence[tuple[str, SectionScores]]) -> str:
    has_f1 = parts[0][1].scores.macro_f1 is not None
    f1_head = ("macro-F1",) if has_f1 else ()
    head = ("", "rows", "accuracy", "95 % interval", *f1_head, "Brier", "log-loss", "calibration error", "noise")
    rows = []
    for colour, (name, part) in zip(svg.COLOURS, parts, strict=False):
        one = part.scores
        f1 = (f"{one.macro_f1:.3f}",) if has_f1 else ()
        cells = (f"{one.rows}", f"{one.accuracy.value:.1%}", interval(one.accuracy), *f1, f"{one.brier:.3f}",
                 f"{one.log_loss:.3f}", f"{one.calibration_error:.3f}", f"{one.calibration_noise:.3f}")  # fmt: skip
        rows.append((f'<span class="{colour}">{escape(name)}</span>', *cells))
    return _table(head, rows)


def _thresholds(parts: Sequence[tuple[str, SectionScores]]) -> str:
    """Without the confidences that no answer has."""
    full = max(sum(one.accuracy is not None for one in part.scores.coverage) for _, part in parts)
    rows = []
    for colour, (name, part) in zip(svg.COLOURS, parts, strict=False):
        kept = part.scores.coverage[:full]
        right = ("-" if one.accuracy is None else f"{one.accuracy.value:.0%}" for one in kept)
        rows.append((f'<span class="{colour}">{escape(name)}</span>: answers', *(f"{one.share:.0%}" for one in kept)))
        rows.append(("accuracy of those", *right))
    head = ("confidence from", *(f"{one.threshold:g}" for one in parts[0][1].scores.coverage[:full]))
    return _table(head, rows)


def _comparison(section: Section) -> str:
    one = section.comparison
    if one is None:
        return ""
    return (
        f"<p>Accuracy differs by {one.accuracy.value:+.1%} ({one.accuracy.low:+.1%} to {one.accuracy.high:+.1%}): "
        f"only the first is right in {one.only_a_right} rows, only the second in {one.only_b_right}; McNemar's exact "
        f"p = {one.mcnemar_p:.3g}. The Brier score differs by {one.brier.value:+.3f} ({one.brier.low:+.3f} to "
        f"{one.brier.high:+.3f}); permutation p = {one.brier_p:.3g}.</p>\n"
    )


def _mistakes(section: Section, report: Report) -> str:
    if not section.mistakes:
        return ""
    head = [report.unit, "answer", "truth", "confidence", *(["the second"] if report.against else []), "text"]
    rows = "".join(_mistake(wrong, head) for wrong in section.mistakes[:_MISTAKES_SHOWN])
    more = len(section.mistakes) - _MISTAKES_SHOWN
    note = f"<p>and {more} more, in the report as JSON</p>\n" if more > 0 else ""
    first = "".join(f"<th>{name}</th>" for name in head)
    return (
        f"<h3>Wrong answers, most confident first: {len(section.mistakes)}</h3>\n"
        f'<div class="wide"><table class="wrong">\n<tr>{first}</tr>\n{rows}</table></div>\n{note}'
    )


def _mistake(wrong: Mistake, head: Sequence[str]) -> str:
    other = [] if wrong.other is None else [wrong.other]
    cells = [str(wrong.row), wrong.answer, wrong.truth, f"{wrong.confidence:.2f}", *other, short(wrong.text, 400)]
    told = (f'<td data-name="{name}">{escape(cell)}</td>' for name, cell in zip(head, cells, strict=True))
    return f"<tr>{''.join(told)}</tr>\n"


def _confusion(options: Sequence[str], part: SectionScores) -> str:
    rows = []
    for name, line in zip(options, part.confusion or [], strict=True):
        total = max(1, sum(line))
        cells = (f'<td class="cell" style="--share:{75 * count // total}%">{count}</td>' for count in line)
        rows.append(f"<tr><td>{escape(short(name, 40))}</td>{''.join(cells)}</tr>\n")
    head = "".join(f"<th>{escape(short(name, 24))}</th>" for name in options)
    return f'<div class="wide"><table>\n<tr><th>actual / predicted</th>{head}</tr>\n{"".join(rows)}</table></div>\n'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{cell}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<tr>{first}</tr>\n{lines}</table></div>\n'


def _figure(title: str, about: str, drawn: str) -> str:
    label = escape(f"{title}. {about}", quote=True)
    return (
        f'<figure>\n<h3>{title}</h3>\n<svg role="img" aria-label="{label}" width="{svg.WIDTH}" height="{svg.HEIGHT}" '
        f'viewBox="0 0 {svg.WIDTH} {svg.HEIGHT}">\n{drawn}</svg>\n<figcaption>{about}</figcaption>\n</figure>\n'
    )
