# Sourced by examples that can be stopped: `limited COMMAND ...` runs one until --seconds=S of the script are over ($seconds; 0: no limit),
# or until Ctrl-C. What runs saves. At the limit the script's own function `rest` is called, which says what there is and ends it.
# shellcheck shell=bash
limited() {
    local rc=0 most=$((seconds - SECONDS))
    if [ "$seconds" = 0 ]; then
        "$@" || rc=$?
    elif [ $most -le 0 ]; then
        rest
    else
        timeout --foreground -s INT $most "$@" || rc=$?
    fi
    case $rc in 124) rest ;; 130) exit 130 ;; esac
    return $rc
}
