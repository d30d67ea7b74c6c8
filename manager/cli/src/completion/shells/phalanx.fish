# Completion of phalanx for fish. Names are asked for at each Tab.
function __phalanx_complete
    set -l typed (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor | string unescape)
    command $typed[1] complete fish -- $typed "$current" 2>/dev/null
end
complete --command phalanx --keep-order --no-files --arguments '(__phalanx_complete)'
