# Completion of phalanx for bash 4.4 or newer. Names are asked for at each Tab.
_phalanx() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(command "${COMP_WORDS[0]}" complete bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -o nosort -F _phalanx phalanx
