"""``completion``: prints what leads a shell's TAB key to ``completing``."""

from __future__ import annotations

from .. import errors
from . import completing, output, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["SCRIPTS", "build_parser", "run"]

_NOTES = (
    "So that it is there in every new shell, a line in ~/.bashrc, or in ~/.zshrc after compinit:\n"
    '    eval "$(vmnest completion bash)"\n'
    '    eval "$(vmnest completion zsh)"\n'
    "For fish a file, once:\n"
    "    vmnest completion fish > ~/.config/fish/completions/vmnest.fish\n"
    "It completes commands, options, the values of those that have few, and the names of sandboxes."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """No options of its own."""
    return words.Parser(verb.title, summary=verb.summary, names="SHELL", notes=_NOTES, without_name=f"{_ONE_OF}. ")


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Print it."""
    (shell,) = options.names
    script = SCRIPTS.get(shell)
    if script is None:
        raise errors.UsageError(f"there is no completion for {shell!r}", hint=f"{_ONE_OF}.")
    output.result({"shell": shell, "script": script}, options=options, text=script)
    return 0


_ONE_OF = f"One of: {', '.join(completing.SHELLS)}"

# A program that was typed with its path is asked itself: it may be in no PATH. ``verbs.COMPLETE`` is how.
#
# Readline takes words apart at "=" and ":" too (unless COMP_WORDBREAKS says otherwise), but not in COMP_LINE; what it
# replaces is $2. COMP_WORDS has the quoting still on. Files are left to readline, which knows what else may stand in
# their names, unless there is something beside them.
_BASH = r"""# Completion of vmnest for bash.

_vmnest() {
    local line=${COMP_LINE:0:COMP_POINT} program=vmnest word rest path i
    local here=() answer=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:space:]]*}"}
        [[ $rest == "$word"* ]] || word=$rest
        if ((i)) && [[ $rest == "$line" ]]; then
            here[${#here[@]}-1]+=$word
        else
            here+=("$word")
        fi
        line=${rest#"$word"}
    done
    [[ $1 == */* ]] && program=${1/#'~/'/$HOME/}
    while IFS= read -r line; do
        answer+=("$line")
    done < <("$program" --complete bash "${here[@]:1}" 2>/dev/null)

    local current=${here[${#here[@]}-1]}
    local before=${current%"$2"}
    COMPREPLY=("${answer[@]:1}")
    case ${answer[0]-} in
        files)
            path=$2
            [[ $current == --*=* && $2 == *"${current#*=}" ]] && path=${current#*=}
            if [[ $path != "$2" ]] || ((${#COMPREPLY[@]})); then
                while IFS= read -r line; do
                    [[ -d $line ]] && rest=/ || rest=
                    COMPREPLY+=("${2%"$path"}$(printf %q "$line")$rest")
                done < <(compgen -f -- "$path")
            else
                compopt -o default -o bashdefault
            fi
            ;;
        directories) compopt -o dirnames ;;
    esac
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ "${COMPREPLY[*]: -1}" == *[:=/] ]] && compopt -o nospace
}

complete -F _vmnest vmnest
"""

_ZSH = r"""#compdef vmnest
# Completion of vmnest for zsh.

_vmnest() {
    local program=vmnest line word entry adds
    local -i ret=1
    local -a answer whole begun
    [[ $words[1] == */* ]] && program=${${(Q)words[1]}/#\~\//$HOME/}
    answer=("${(@f)$("$program" --complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    adds=$answer[1]
    for line in "${(@)answer[2,-1]}"; do
        word=${line%%$'\t'*}
        entry=${${word//\\/\\\\}//:/\\:}
        [[ $line == *$'\t'?* ]] && entry+=:${line#*$'\t'}
        if [[ $word == *[:=] ]]; then
            begun+=("$entry")
        else
            whole+=("$entry")
        fi
    done
    (( $#whole )) && _describe vmnest whole && ret=0
    (( $#begun )) && _describe vmnest begun -S '' && ret=0
    if [[ $adds == (files|directories) ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        if [[ $adds == files ]]; then
            _files && ret=0
        else
            _files -/ && ret=0
        fi
    fi
    return ret
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _vmnest "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef _vmnest vmnest
fi
"""

_FISH = r"""# Completion of vmnest for fish.

function __vmnest_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l program vmnest
    string match -q -- '*/*' $typed[1]; and set program (string replace -r -- '^~/' "$HOME/" $typed[1])
    set -e typed[1]
    set -l answer ($program --complete fish $typed "$current" 2>/dev/null)
    set -l adds $answer[1]
    set -e answer[1]
    printf '%s\n' $answer

    set -l prefix (string match -r -- '^--[^=]*=' "$current"; or echo '')
    set -l path (string replace -- "$prefix" '' "$current")
    switch "$adds"
        case files
            printf '%s\n' $prefix(complete -C "'' $path")
        case directories
            printf '%s\n' $prefix(__fish_complete_directories "$path" '')
    end
end

complete -c vmnest -f -k -a '(__vmnest_complete)'
"""

SCRIPTS = dict(zip(completing.SHELLS, (_BASH, _ZSH, _FISH), strict=True))
