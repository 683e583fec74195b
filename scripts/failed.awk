# Of the output of a job of scripts/stages.mk that failed: each panic, then the commands that run what
# has failed alone, which are each of Cargo's tests that it names, and the stage.

BEGIN {
    split(job, part, ".")
    if (part[2]) {
        environment = "PG_CONFIG=$(scripts/postgres " part[2] ") "
        option = "--pg " part[2] " "
    }
    print job " failed:"
}

/^thread '.*' .*panicked at / { left = 60 }
left && /^(note: run with `RUST_BACKTRACE=1`.*|stack backtrace:|)$/ { left = 0 }
left { print "  " substr($0, 1, 500); left-- }

/^test .* \.\.\. FAILED$/ {
    sub(/^test /, "")
    sub(/( - should panic)? \.\.\. FAILED$/, "")
    failed[++count] = $0
}

/^error: test failed, to rerun pass `/ {
    split($0, quoted, "`")
    for (n = 1; n <= count; n++)
        commands = commands "  " environment "cargo test --profile quick " quoted[2] " -- --exact --nocapture " failed[n] "\n"
    count = 0
}

END { print "to run it alone:\n" commands "  scripts/test " option part[1] }
