"""`decided completion`: a script that teaches a shell the commands and their flags."""

from argparse import ArgumentParser
from typing import Any

from decided.settings import Settings

SUMMARY = "print a completion script for bash, zsh or fish"

DESCRIPTION = """\
Print a script that lets the shell complete commands and flags. Load it where your shell loads its settings.
"""

EPILOG = """\
try it:
  source <(decided completion bash)      in ~/.bashrc
  source <(decided completion zsh)       in ~/.zshrc
  decided completion fish | source       in ~/.config/fish/config.fish

exit codes: 0 printed
"""

OVERRIDES: dict[str, str] = {}

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_decided() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "%(commands)s" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]}" in
%(cases)s
    esac
    [[ "$word" == -* || "${COMP_WORDS[1]}" == completion ]] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _decided decided
"""
_CASE = '        %s) COMPREPLY=($(compgen -W "%s" -- "$word")) ;;'


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    print(script(given["shell"], given["flags"]), end="")


def script(shell: str, flags: dict[str, list[str]]) -> str:
    """The script for a shell, from the commands and the flags of each."""
    if shell == "fish":
        lines = ["complete -c decided -f -n __fish_use_subcommand -a '" + " ".join(flags) + "'"]
        for command, names in flags.items():
            seen = f"'__fish_seen_subcommand_from {command}'"
            lines += [f"complete -c decided -n {seen} -l {name.removeprefix('--')}" for name in names]
        lines.append(f"complete -c decided -f -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'")
        return "\n".join(lines) + "\n"
    words = {command: [*names, *(SHELLS if command == "completion" else ())] for command, names in flags.items()}
    cases = "\n".join(_CASE % (command, " ".join(names)) for command, names in words.items())
    bash = _BASH % {"commands": " ".join(flags), "cases": cases}
    return bash if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash}"
