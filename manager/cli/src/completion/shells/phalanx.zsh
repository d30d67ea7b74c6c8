#compdef phalanx
# Completion of phalanx for zsh. Names are asked for at each Tab.
_phalanx() {
    local -a found open closed
    found=("${(@f)$(command ${(Q)words[1]} complete zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} == 0 )); then
        _files
        return
    fi
    open=("${(@M)found:#*[:\/=]}")
    closed=("${(@)found:#*[:\/=]}")
    (( ${#closed} )) && compadd -a closed
    (( ${#open} )) && compadd -S '' -a open
}
if [ "$funcstack[1]" = _phalanx ]; then
    _phalanx "$@"
else
    compdef _phalanx phalanx
fi
