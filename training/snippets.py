"""Makes questions about a line of code: does it do what its name says, what does a command do, what is printed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from training.rows import Row, one_of, row, write, yes_no


class Function(NamedTuple):
    """A name, its arguments, bodies that keep what the name promises and bodies that do not."""

    name: str
    takes: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


FUNCTIONS = (
    Function("add", "a, b", ("a + b", "b + a", "sum([a, b])"), ("a - b", "a * b", "a", "a + a", "b - a")),
    Function("subtract", "a, b", ("a - b", "-b + a"), ("a + b", "b - a", "a / b")),
    Function("multiply", "x, y", ("x * y", "y * x"), ("x + y", "x ** y", "x / y")),
    Function("divide", "x, y", ("x / y",), ("x * y", "y / x", "x - y")),
    Function("square", "n", ("n * n", "n ** 2"), ("n * 2", "n + n", "n ** 3")),
    Function("cube", "n", ("n ** 3", "n * n * n"), ("n * 3", "n ** 2")),
    Function("half", "x", ("x / 2", "x * 0.5"), ("x * 2", "x - 2", "x / 4")),
    Function("twice", "x", ("2 * x", "x + x"), ("x ** 2", "x / 2", "x")),
    Function("negate", "x", ("-x", "0 - x"), ("x", "abs(x)", "1 / x")),
    Function("increment", "n", ("n + 1",), ("n - 1", "n", "n + n")),
    Function("decrement", "n", ("n - 1",), ("n + 1", "-n")),
    Function("is_odd", "n", ("n % 2 != 0", "abs(n) % 2 == 1"), ("n % 2 == 0", "n % 3 == 1", "n > 1")),
    Function("is_positive", "x", ("x > 0", "0 < x"), ("x < 0", "x == 0", "x != 0")),
    Function("is_negative", "x", ("x < 0",), ("x > 0", "x <= 1")),
    Function(
        "is_empty", "items", ("len(items) == 0", "not items"), ("len(items) > 0", "items is not None", "bool(items)")
    ),
    Function("is_adult", "age", ("age >= 18", "not (age < 18)"), ("age < 18", "age >= 8", "age == 18")),
    Function("larger", "a, b", ("max(a, b)", "a if a > b else b"), ("min(a, b)", "b if a > b else a", "a")),
    Function("smaller", "a, b", ("min(a, b)", "b if b < a else a"), ("max(a, b)", "a + b")),
    Function("average", "xs", ("sum(xs) / len(xs)",), ("sum(xs)", "len(xs) / sum(xs)", "max(xs)")),
    Function("total", "prices", ("sum(prices)",), ("len(prices)", "max(prices)", "prices[0]")),
    Function("first", "items", ("items[0]",), ("items[1]", "items[-1]", "items")),
    Function("count", "items", ("len(items)",), ("sum(items)", "items[0]", "len(items) + 1")),
    Function("reverse", "text", ("text[::-1]", "''.join(reversed(text))"), ("text", "text.upper()", "text[1:]")),
    Function("shout", "text", ("text.upper()", "text.upper() + '!'"), ("text.lower()", "text.strip()")),
    Function("lowercase", "text", ("text.lower()",), ("text.upper()", "text.title()")),
    Function("trim", "text", ("text.strip()",), ("text.split()", "text + ' '", "text.lower()")),
    Function("greet", "name", ("'Hello, ' + name", "f'Hello {name}'"), ("'Goodbye, ' + name", "name.lower()")),
    Function(
        "celsius_to_fahrenheit",
        "c",
        ("c * 9 / 5 + 32", "c * 1.8 + 32"),
        ("c * 5 / 9 + 32", "c + 32", "(c - 32) * 5 / 9"),
    ),
    Function("minutes_to_seconds", "m", ("m * 60", "60 * m"), ("m / 60", "m * 100", "m * 24")),
    Function("hours_to_minutes", "h", ("h * 60",), ("h * 24", "h / 60", "h + 60")),
    Function("km_to_m", "km", ("km * 1000",), ("km / 1000", "km * 100")),
    Function(
        "with_tax",
        "price, rate",
        ("price * (1 + rate)", "price + price * rate"),
        ("price - price * rate", "price * rate"),
    ),
    Function(
        "discounted",
        "price, share",
        ("price * (1 - share)", "price - price * share"),
        ("price * (1 + share)", "price * share"),
    ),
    Function("area_of_rectangle", "w, h", ("w * h",), ("w + h", "2 * (w + h)")),
    Function("perimeter_of_rectangle", "w, h", ("2 * (w + h)", "2 * w + 2 * h"), ("w * h", "w + h")),
    Function("same", "a, b", ("a == b",), ("a != b", "a > b")),
    Function("contains", "items, x", ("x in items",), ("x not in items", "items == x")),
    Function(
        "starts_with_a", "word", ("word.startswith('a')", "word[0] == 'a'"), ("word.endswith('a')", "'a' in word")
    ),
    Function("either", "p, q", ("p or q",), ("p and q", "not p")),
    Function("both", "p, q", ("p and q",), ("p or q", "p")),
    Function("sorted_descending", "xs", ("sorted(xs, reverse=True)",), ("sorted(xs)", "xs[::-1]")),
    Function("without_duplicates", "xs", ("list(dict.fromkeys(xs))",), ("xs + xs", "sorted(xs)")),
    Function("last_character", "text", ("text[-1]",), ("text[0]", "text[:-1]")),
    Function(
        "is_weekend",
        "day",
        ("day in ('Saturday', 'Sunday')",),
        ("day in ('Monday', 'Tuesday')", "day not in ('Saturday', 'Sunday')"),
    ),
)
JS = {" == ": " === ", " != ": " !== ", " and ": " && ", " or ": " || ", "not ": "!"}
PYTHON_ONLY = re.compile(r"[\['.]|\w\(|\b(in|if|is|not items)\b")


def _code(rng: random.Random, made: Function, body: str) -> str:
    """In Python, or where the body is the same in both, in JavaScript."""
    if rng.random() < 0.35 and not PYTHON_ONLY.search(body):
        for old, new in JS.items():
            body = body.replace(old, new)
        camel = made.name.split("_")[0] + "".join(part.capitalize() for part in made.name.split("_")[1:])
        return rng.choice(
            (f"function {camel}({made.takes}) {{ return {body}; }}", f"const {camel} = ({made.takes}) => {body};")
        )
    way = rng.choice(("def {}({}): return {}", "def {}({}):\n    return {}", "{} = lambda {}: {}"))
    return way.format(made.name, made.takes, body)


def _named(rng: random.Random, made: Function) -> Row:
    """Which of three names is that of the body?"""
    code = _code(rng, made._replace(name="f"), rng.choice(made.right))
    others = [other.name for other in FUNCTIONS if other.takes.count(",") != made.takes.count(",")]
    return one_of(rng, "function", code, "Which name would fit?", made.name, [made.name, *rng.sample(others, 2)])


def function(rng: random.Random) -> Row:
    """Does it do what its name says, or which name would fit?"""
    made, right = rng.choice(FUNCTIONS), rng.random() < 0.5
    code = _code(rng, made, rng.choice(made.right if right else made.wrong))
    state: object = code if rng.random() < 0.7 else {"file": "utils", "code": code}
    if rng.random() < 0.2:
        return _named(rng, made)
    ask, answer = rng.choice(
        (
            ("Does it do what its name says?", right),
            ("Correct?", right),
            ("Is there a bug?", not right),
            ("Does the code keep what the name promises?", right),
            ("Would you approve this?", right),
            ("bug", not right),
            ("Is the implementation right?", right),
        )
    )
    return yes_no(rng, "function", state, ask, answer)


class Command(NamedTuple):
    """A command, what it does, whether it changes something and whether something is lost by it for good."""

    text: str
    does: str
    changes: bool
    destroys: bool


COMMANDS = (
    Command("ls -la", "lists files", False, False),
    Command("cat notes.txt", "shows a file", False, False),
    Command("rm -rf build/", "deletes a folder", True, True),
    Command("rm report.csv", "deletes a file", True, True),
    Command("mkdir backup", "makes a folder", True, False),
    Command("cp -n a.txt b.txt", "copies a file", True, False),
    Command("mv -n old.txt new.txt", "renames a file", True, False),
    Command("grep -n error app.log", "searches in a file", False, False),
    Command("tail -f app.log", "shows the end of a file", False, False),
    Command("wc -l data.csv", "counts lines", False, False),
    Command("chmod +x run.sh", "makes a file executable", True, False),
    Command("ps aux", "lists processes", False, False),
    Command("df -h", "shows free disk space", False, False),
    Command("ping example.org", "tests whether a host answers", False, False),
    Command("mkfs.ext4 /dev/sdb1", "formats a disk", True, True),
    Command("dd if=/dev/zero of=/dev/sda", "overwrites a disk", True, True),
    Command("find . -name '*.log' -delete", "deletes files", True, True),
    Command("find . -name '*.log'", "finds files", False, False),
    Command("git status", "shows what has changed", False, False),
    Command("git log --oneline", "shows the history", False, False),
    Command("git push --force origin main", "overwrites the remote branch", True, True),
    Command("git commit -m 'Fix typo'", "records changes", True, False),
    Command("git reset --hard HEAD~3", "throws changes away", True, True),
    Command("git diff", "shows what has changed", False, False),
    Command("git clone https://example.org/a.git", "copies a repository", True, False),
    Command("git checkout -b topic", "makes a branch", True, False),
    Command("docker ps", "lists containers", False, False),
    Command("docker system prune -a --volumes", "deletes images and volumes", True, True),
    Command("kubectl get pods", "lists pods", False, False),
    Command("kubectl delete namespace prod", "deletes a namespace", True, True),
    Command("pip install requests", "installs a package", True, False),
    Command("SELECT * FROM orders", "reads rows", False, False),
    Command("SELECT count(*) FROM users", "counts rows", False, False),
    Command("INSERT INTO users (name) VALUES ('Ana')", "adds a row", True, False),
    Command("DROP TABLE customers", "deletes a table", True, True),
    Command("DELETE FROM sessions WHERE expired", "deletes rows", True, True),
    Command("TRUNCATE TABLE events", "empties a table", True, True),
    Command("UPDATE products SET price = 0", "changes every row", True, True),
    Command("CREATE TABLE logs (id int)", "makes a table", True, False),
    Command("CREATE INDEX ON users (email)", "makes an index", True, False),
    Command("ALTER TABLE users ADD COLUMN age int", "adds a column", True, False),
    Command("DROP DATABASE shop", "deletes a database", True, True),
    Command("GET /users/7", "reads a user", False, False),
    Command("DELETE /users/7", "deletes a user", True, True),
    Command('POST /users {"name": "Ana"}', "creates a user", True, False),
    Command("crontab -r", "deletes all scheduled jobs", True, True),
    Command("curl https://example.org", "fetches a page", False, False),
    Command("history | head", "shows earlier commands", False, False),
    Command("terraform plan", "shows what would change", False, False),
    Command("terraform destroy", "deletes the infrastructure", True, True),
)


def command(rng: random.Random) -> Row:
    """What a command does, whether it changes or loses something."""
    made = rng.choice(COMMANDS)
    state: object = rng.choice(
        (made.text, f"$ {made.text}", {"command": made.text}, {"tool": "shell", "input": made.text})
    )
    way = rng.randrange(4)
    if way == 0:
        begin = made.does.split()[0]
        others = sorted({other.does for other in COMMANDS if not other.does.startswith(begin)})
        return one_of(
            rng,
            "command",
            state,
            rng.choice(("What does it do?", "Effect")),
            made.does,
            [made.does, *rng.sample(others, 3)],
        )
    if way == 1:
        return row(
            "command",
            state,
            "score",
            rng.choice(("How risky is this on a live system?", "Impact", "risk")),
            made.changes + made.destroys,
            rng.choice(
                (
                    ["only reads", "changes something", "deletes or overwrites something"],
                    ["read-only", "makes a change", "destroys data"],
                )
            ),
        )
    ask, answer = rng.choice(
        (
            ("Does it change anything?", made.changes),
            ("Read-only?", not made.changes),
            ("Can data be lost by it?", made.destroys),
            ("Destructive?", made.destroys),
            ("Should a person confirm this first, because something is deleted or overwritten?", made.destroys),
            ("Is this safe to run in production without asking? Only commands that read are.", not made.changes),
        )
    )
    return yes_no(rng, "command", state, ask, answer)


def loop(rng: random.Random) -> Row:
    """How often something runs, and with what it ends."""
    first, size = rng.choice((0, 0, 1)), rng.randint(1, 6)
    last = first + size - 1
    spans = [f"for i in range({first}, {last + 1}):"] + ([f"for i in range({size}):"] if first == 0 else [])
    state = rng.choice(
        (
            rng.choice(spans) + " print(i)",
            rng.choice(spans) + "\n    print(i)",
            f"for (let i = {first}; i <= {last}; i++) console.log(i);",
            f"for (let i = {first}; i < {last + 1}; i++) console.log(i);",
        )
    )
    if rng.random() < 0.5:
        named, right = rng.choice((("How many lines are printed?", size), ("What is printed last?", last)))
        options = {right, right + 1, max(0, right - 1), right + 2}
        return one_of(rng, "loop", state, named, str(right), [str(option) for option in options])
    claimed = rng.choice((size, size - 1, size + 1))
    return yes_no(rng, "loop", state, f"Does it print {claimed} lines?", claimed == size)


FAMILIES: dict[Callable[[random.Random], Row], int] = {function: 10_000, command: 8000, loop: 3000}


if __name__ == "__main__":
    write(FAMILIES, __doc__ or "")
