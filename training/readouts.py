"""Makes questions about records as programs send them: gauges, permissions, deadlines, quotas, orders, changes.

As in `generate.py` a record is drawn first, then a question whose answer is known. Here fields stand side by side in
one unit, and rules come with the question, as developers ask: "Which resource is short?", "Only admins may delete.
Allowed?"
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

from training.gauges import NONE, gauge
from training.rows import Row, one_of, row, write, yes_no

NAMES = ("bob", "eve", "Ana", "m.okafor", "Lena", "svc-backup", "Priya", "jonas", "Kofi", "u-2231", "Mei", "tariq")
ROLES = ("guest", "viewer", "editor", "member", "admin", "owner", "auditor", "manager", "trainee", "nurse", "teacher")
ACTIONS = ("delete", "read", "export", "publish", "invite", "refund", "approve", "edit", "restart", "archive", "print")
RESOURCES = ("database", "report", "invoice", "user account", "price list", "backup", "patient file", "timetable")


def permission(rng: random.Random) -> Row:
    """A rule about who may do what, and one who wants to."""
    role, other = rng.sample(ROLES, 2)
    action, another = rng.sample(ACTIONS, 2)
    thing = rng.choice(RESOURCES)
    record: Row = {"user": rng.choice(NAMES), "role": role, "action": action, "resource": thing}
    two = rng.random() < 0.5
    own = record["user"] if two else rng.choice([name for name in NAMES if name != record["user"]])
    signed = rng.randint(0, 3)
    inside = rng.random() < 0.5
    rule, allowed, more = rng.choice((
        (f"Only {role}s may {action}.", True, {}),
        (f"Only {other}s may {action}.", False, {}),
        (f"{role.capitalize()}s may {action}, everyone else may not.", True, {}),
        (f"{other.capitalize()}s may {action}, everyone else may not.", False, {}),
        (f"{role.capitalize()}s may do anything except {action}.", False, {}),
        (f"{role.capitalize()}s may do anything except {another}.", True, {}),
        (f"Nobody but {role}s and {other}s may {action}.", True, {}),
        (f"{role.capitalize()}s may only {another}.", False, {}),
        (f"Everyone may {action} what they own.", two, {"owner": own}),
        (f"To {action} takes two approvals.", signed >= 2, {"approvals": signed}),
        (f"{action.capitalize()} is allowed from inside the office network alone.", inside,
         {"network": "office" if inside else rng.choice(("home", "hotel", "mobile"))}),
        (f"{role.capitalize()}s may {action}, unless they are suspended.", not inside, {"suspended": inside}),
    ))  # fmt: skip
    record |= more
    if rng.random() < 0.3:
        record["ticket"] = f"T-{rng.randrange(100, 9999)}"
    state: object = record
    if rng.random() < 0.2:
        state = {"rule": rule, "request": record}
        rule = ""
    asks = ("Should this be allowed?", "Allowed?", "May this go ahead?", "Is this permitted?")
    refusals = ("Must this be refused?", "Should this be blocked?", "Is this against the rule?")
    refused = rng.random() < 0.25
    ask = rng.choice(refusals if refused else asks)
    asked = (f"{rule} {ask}" if rng.random() < 0.7 else f"{ask} {rule}").strip()
    if rng.random() < 0.75:
        return yes_no(rng, "permission", state, asked, allowed != refused)
    yes, no = rng.choice((("allow", "deny"), ("permit", "block"), ("go ahead", "refuse")))
    return one_of(rng, "permission", state, f"{rule} What now?".strip(), yes if allowed else no, [yes, no])


DATED = (
    ("delivered", "return_requested", "Returns are possible within {} of delivery.", "May it be returned?"),
    ("bought", "claimed", "The warranty runs for {} from purchase.", "Is the claim in time?"),
    ("invoiced", "paid", "Invoices are to be paid within {}.", "Was it paid in time?"),
    ("booked", "cancelled", "Bookings can be cancelled free of charge within {}.", "Is it free of charge?"),
    ("reported", "answered", "Reports must be answered within {}.", "Was it answered in time?"),
    ("opened", "checked", "Once opened it keeps for {}.", "Was it still good when it was checked?"),
)
SPANS = ((3, "three days"), (7, "7 days"), (7, "a week"), (10, "10 days"), (14, "14 days"), (14, "two weeks"),
         (28, "four weeks"), (30, "30 days"), (90, "90 days"), (365, "365 days"))  # fmt: skip


def window(rng: random.Random) -> Row:
    """Two days, and how many may lie between them."""
    first, second, rule, ask = rng.choice(DATED)
    days, said = rng.choice(SPANS)
    inside = rng.random() < 0.5
    gap = rng.randint(0, days - 1) if inside else days + rng.choice((2, 5, 20, 60, 200))
    start = date(2026, 1, 1) + timedelta(days=rng.randrange(600))
    end = start + timedelta(days=gap)
    ways = (date.isoformat, lambda d: f"{d.day} {d:%B %Y}", lambda d: f"{d.day} {d:%b}")
    show = rng.choice(ways if start.year == end.year else ways[:2])  # days without a year lie in one
    record: Row = {"id": rng.randrange(1000, 9999), first: show(start), second: show(end)}
    asked = f"{rule.format(said)} {ask}"
    if rng.random() < 0.2:
        return yes_no(rng, "window", {"terms": rule.format(said), **record}, ask, inside)
    return yes_no(rng, "window", record, asked, inside)


def limit(rng: random.Random) -> Row:
    """Something used or asked for against what is there or allowed."""
    of, cap, what, verb = rng.choice((
        ("amount", "limit", "the amount", "over the limit"), ("used", "quota", "the use", "above the quota"),
        ("guests", "seats", "the number of guests", "more than there are seats"),
        ("requests", "requests_per_minute", "the number of requests", "over what is allowed"),
        ("weight_kg", "max_weight_kg", "it", "too heavy"), ("spent", "budget", "the spending", "over budget"),
        ("ordered", "in_stock", "the order", "larger than the stock"), ("speed", "speed_limit", "it", "too fast"),
        ("age", "minimum_age", "", ""), ("battery", "needed", "", ""), ("score", "pass_mark", "", ""),
    ))  # fmt: skip
    top = rng.choice((rng.randint(5, 90), rng.randint(100, 990), rng.randint(10, 99) * 100))
    over = rng.random() < 0.5
    value = max(0, top + (1 if over else -1) * max(1, int(top * rng.choice((0.02, 0.1, 0.3, 0.6)))))
    record: Row = {of: value, cap: top}
    if rng.random() < 0.5:
        record = {cap: top, of: value, "name": rng.choice(NAMES)}
    if not what:
        ask = {"age": "Old enough?", "battery": "Is there enough charge?", "score": "Passed?"}[of]
        return yes_no(rng, "limit", record, ask, over)
    if rng.random() < 0.3:
        ask = rng.choice(("Is this within what is allowed?", "OK?", "Does it fit?"))
        return yes_no(rng, "limit", record, ask, not over)
    return yes_no(rng, "limit", record, f"Is {what} {verb}?", over)


ITEMS = ("bolts", "lamps", "mugs", "cables", "filters", "gloves", "labels", "pallets", "batteries", "folders", "hinges")


def delivery(rng: random.Random) -> Row:
    """What was ordered and what came."""
    ordered = {name: rng.randint(1, 60) for name in rng.sample(ITEMS, rng.randint(2, 5))}
    came, wrong = dict(ordered), None
    fault = rng.choice(("missing", "short", "none", "none"))
    if fault != "none":
        wrong = rng.choice(list(ordered))
        if fault == "missing" or ordered[wrong] == 1:
            del came[wrong]
        else:
            came[wrong] = rng.randint(1, ordered[wrong] - 1)
    state = {"ordered": ordered, rng.choice(("delivered", "received", "scanned")): came}
    if rng.random() < 0.5:
        complete, ask = rng.choice(((True, "Is the delivery complete?"), (False, "Is anything missing?"),
                                    (True, "Did everything arrive as ordered?")))  # fmt: skip
        return yes_no(rng, "delivery", state, ask, (wrong is None) == complete)
    none, ask = rng.choice(NONE), rng.choice(("What is missing?", "Which item came short?"))
    return one_of(rng, "delivery", state, ask, wrong or none, [*ordered, none])


FIELDS: dict[str, tuple[object, ...]] = {
    "status": ("open", "closed", "pending"), "owner": NAMES, "priority": ("low", "normal", "high"),
    "price": (9, 19, 24.5, 80), "public": (True, False), "city": ("Porto", "Lagos", "Leeds", "Osaka"),
    "plan": ("free", "pro", "team"), "due": ("2026-03-01", "2026-04-15", "2026-05-30"), "retries": (0, 1, 3, 5),
    "region": ("eu-1", "us-2", "ap-1"),
}  # fmt: skip


def change(rng: random.Random) -> Row:
    """A record before and after."""
    before = {name: rng.choice(FIELDS[name]) for name in rng.sample(list(FIELDS), rng.randint(3, 6))}
    after, changed = dict(before), rng.choice((None, *before))
    if changed:
        after[changed] = rng.choice([value for value in FIELDS[changed] if value != before[changed]])
    state = {"before": before, "after": after}
    if rng.random() < 0.4:
        named = changed if changed and rng.random() < 0.5 else rng.choice(list(before))
        return yes_no(rng, "change", state, f"Did the {named} change?", named == changed)
    ask = rng.choice(("What was changed?", "Which field differs?"))
    return one_of(rng, "change", state, ask, changed or "nothing", [*before, "nothing"])


CHECKS = ("lint", "build", "unit tests", "deploy", "smoke test", "backup", "licence", "spelling", "links", "login")
BAD = ("failed", "error", "FAIL", "red", "not ok")
GOOD = {"failed": "passed", "error": "ok", "FAIL": "PASS", "red": "green", "not ok": "ok"}


def checks(rng: random.Random) -> Row:
    """A list of things, some of which went wrong."""
    names, bad = rng.sample(CHECKS, rng.randint(3, 6)), rng.choice(BAD)
    wrong = rng.sample(names, rng.choice((0, 0, 1, 1, 1, 2, 3)))
    told = {name: bad if name in wrong else GOOD[bad] for name in names}
    state: object = rng.choice((told, [{"check": name, "result": result} for name, result in told.items()]))
    if len(wrong) < 2 and rng.random() < 0.5:
        none, ask = rng.choice(NONE), rng.choice(("What went wrong?", "Which one failed?"))
        return one_of(rng, "checks", state, ask, [*wrong, none][0], [*names, none])
    if rng.random() < 0.3:
        levels = ["none", "one", "two", "three"]
        return row("checks", state, "score", rng.choice(("How many failed?", "Failures")), len(wrong), levels)
    named = rng.choice(names)
    ask, answer = rng.choice((("Did everything pass?", not wrong), ("Did anything fail?", bool(wrong)),
                              ("All good?", not wrong), (f"Did {named} fail?", named in wrong)))  # fmt: skip
    return yes_no(rng, "checks", state, ask, answer)


BLANK: tuple[object, ...] = (None, "", "   ", "n/a", "-", [])
FILLED: dict[str, tuple[object, ...]] = {
    "name": ("Ana Reyes", "Tomasz Nowak", "Ife Bello"), "email": ("a.reyes@example.org", "tn@example.com"),
    "phone": ("0171 5550192", "+48 22 555 01 42"), "address": ("12 Mill Lane, Leeds", "Rua do Sol 4, Porto"),
    "birth_date": ("1984-02-11", "2001-09-30"), "iban": ("PL61 1090 1014 0000", "DE89 3704 0044"),
    "signature": ("A. Reyes", "signed"), "policy_number": ("P-88213", "77-1029"), "amount": (12.5, 480, 0),
}  # fmt: skip


def form(rng: random.Random) -> Row:
    """A form, and what is not filled in. A zero is."""
    names = rng.sample(list(FILLED), rng.randint(3, 6))
    record = {name: rng.choice(FILLED[name]) for name in names}
    empty = rng.choice((None, *names))
    if empty:
        record[empty] = rng.choice(BLANK)
    if rng.random() < 0.5:
        none = rng.choice(NONE)
        ask = rng.choice(("Which field is empty?", "What is missing?", "What do we still have to ask for?"))
        return one_of(rng, "form", record, ask, empty or none, [*names, none])
    named = empty if empty and rng.random() < 0.4 else rng.choice(names)
    ask, answer = rng.choice(((f"Is the {named.replace('_', ' ')} given?", named != empty),
                              ("Is the form complete?", empty is None),
                              ("Is anything missing?", empty is not None)))  # fmt: skip
    return yes_no(rng, "form", record, ask, answer)


def hours(rng: random.Random) -> Row:
    """A time of day against opening hours."""
    opens, closes = rng.randint(6, 11), rng.randint(15, 22)
    inside = rng.random() < 0.5
    hour = rng.randint(opens, closes - 1) if inside else rng.choice([*range(opens), *range(closes, 24)])
    minute = rng.choice((0, 5, 15, 30, 45, 50)) if inside or hour != closes else rng.choice((5, 15, 30, 45))
    clock = f"{hour:02}:{minute:02}"
    if rng.random() < 0.3:
        clock = f"{(hour - 1) % 12 + 1}:{minute:02} {'a.m.' if hour < 12 else 'p.m.'}"
    times = {"opens": f"{opens:02}:00", "closes": f"{closes:02}:00"}
    state, ask = rng.choice((
        ({**times, "call_at": clock}, "Is the call within opening hours?"),
        ({"arrival": clock, "hours": f"{opens:02}:00-{closes:02}:00"}, "Is it open at that time?"),
        (f"Open from {opens} to {closes}. A customer comes at {clock}.", "Is the shop open then?"),
        ({"requested": clock}, f"Deliveries are taken from {opens}:00 to {closes}:00. Can this one be taken?"),
    ))  # fmt: skip
    return yes_no(rng, "hours", state, ask, inside)


FAMILIES: dict[Callable[[random.Random], Row], int] = {
    gauge: 24_000, permission: 12_000, window: 8000, limit: 8000, delivery: 6000, change: 6000, checks: 6000,
    form: 6000, hours: 4000,
}  # fmt: skip


if __name__ == "__main__":
    write(FAMILIES, __doc__ or "")
