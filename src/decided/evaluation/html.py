"""The report as one page: HTML and SVG in one file that asks nothing of the network, light or dark as the reader is."""

from collections.abc import Sequence
from html import escape

from decided.evaluation import svg
from decided.evaluation.report import Report, Section, SectionScores, interval, short

_RELIABILITY = "Across, how sure the model is; upwards, how often it is right. On the dashed line both agree."
_CONFIDENCE = "How many answers have which confidence."
_COVERAGE = "Across, the share of answers taken, the surest first; upwards, how many of those are right."

_STYLE = f"""
:root {{ color-scheme: light dark; {svg.LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {svg.DARK} }} }}
{svg.STYLE}"""
_STYLE += """\
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1040px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
p, figcaption { color: var(--quiet); margin: .25rem 0; } .plots { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .85rem; max-width: 300px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th { font-weight: 600; color: var(--quiet); } th:first-child, td:first-child { text-align: left; }
.a { color: var(--a); } .b { color: var(--b); }
.cell { background: color-mix(in srgb, var(--a) var(--share), transparent); }
"""


def html(report: Report) -> str:
    versus = f" against {report.against}" if report.against else ""
    skipped = f", {report.skipped} skipped" if report.skipped else ""
    title = escape(f"{report.model}{versus}")
    body = "".join(_section(section, report) for section in report.sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>{report.lines} labelled lines{skipped}</p>\n{body}</body>\n</html>\n"
    )


def _section(section: Section, report: Report) -> str:
    parts = [(report.model, section.a), *([(report.against or "", section.b)] if section.b else [])]
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
        f'<div class="plots">\n{plots}</div>\n{_thresholds(parts)}{tables}</section>\n'
    )


def _figures(parts: Sequence[tuple[str, SectionScores]]) -> str:
    head = ("", "rows", "accuracy", "95 % interval", "macro-F1", "Brier", "log-loss", "calibration error", "noise")
    rows = []
    for colour, (name, part) in zip(svg.COLOURS, parts, strict=False):
        one = part.scores
        f1 = "-" if one.macro_f1 is None else f"{one.macro_f1:.3f}"
        cells = (f"{one.rows}", f"{one.accuracy.value:.1%}", interval(one.accuracy), f1, f"{one.brier:.3f}",
                 f"{one.log_loss:.3f}", f"{one.calibration_error:.3f}", f"{one.calibration_noise:.3f}")  # fmt: skip
        rows.append((f'<span class="{colour}">{escape(name)}</span>', *cells))
    return _table(head, rows)


def _thresholds(parts: Sequence[tuple[str, SectionScores]]) -> str:
    rows = []
    for colour, (name, part) in zip(svg.COLOURS, parts, strict=False):
        kept = part.scores.coverage
        right = ("-" if one.accuracy is None else f"{one.accuracy.value:.0%}" for one in kept)
        rows.append((f'<span class="{colour}">{escape(name)}</span>: answers', *(f"{one.share:.0%}" for one in kept)))
        rows.append(("accuracy of those", *right))
    head = ("confidence from", *(f"{one.threshold:g}" for one in parts[0][1].scores.coverage))
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
