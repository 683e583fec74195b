#!/bin/bash
# Gives a trial server a clock of its own, moves it to tomorrow and back by a minute, and shows the worker of an ID after
# each step, and the number of moves to a backup worker: 1, 513, 1.
#
# Run it with bash as a user other than root in an empty folder, with libfaketime installed (Debian's package of that name)
# and PostgreSQL's programs in the PATH. End with `pg_ctl -D data stop`, and delete the folder.
set -euo pipefail

set_clock() { echo "$1" >clock.new && mv clock.new clock; }     # seconds from the true time
export FAKETIME_TIMESTAMP_FILE=$PWD/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
# shellcheck disable=SC2016 # the dynamic linker expands it
export FAKETIME_DONT_RESET=1 NO_FAKE_STAT=1 LD_PRELOAD='/usr/$LIB/faketime/libfaketime.so.1'
export PGHOST=$PWD PGUSER=postgres PGDATABASE=postgres

set_clock +0            # the true time
initdb -D data -U postgres -A trust >log
cat >>data/postgresql.conf <<END
shared_preload_libraries = 'snowflake_id'
snowflake_id.worker_id = 1
listen_addresses = ''
unix_socket_directories = '$PWD'
END
pg_ctl -D data -l log -w start >log.start
psql -qc 'CREATE EXTENSION snowflake_id'

# Up to PostgreSQL 15, background workers that were started with the server do not see its clock. Restart the extension's.
psql -qAtc 'SELECT snowflake_nextval()' >log.first
kill "$(psql -Atc 'SELECT keeper_pid FROM snowflake_status')"
sleep 1
until [ "$(psql -Atc 'SELECT keeper_pid > 0 FROM snowflake_status')" = t ]; do sleep 0.2; done

set_clock +86400        # tomorrow: no worker generates IDs for a time before the first start
psql -Atc 'SELECT worker_id FROM snowflake_decode(snowflake_nextval())'
set_clock +86340        # back by a minute, at once
psql -Atc 'SELECT worker_id FROM snowflake_decode(snowflake_nextval())'
sleep 3
psql -Atc 'SELECT rotations FROM snowflake_status'
