{create} {s}snowflake_timestamp(id bigint) RETURNS timestamp with time zone IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN {is_id} THEN (timestamp '{epoch}' OPERATOR(pg_catalog.+) {time}) AT TIME ZONE 'UTC'
        {no_timestamp} END{done};

{create} {s}snowflake_datacenter(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN {is_id} THEN {datacenter}
        {no_integer} END{done};

{create} {s}snowflake_worker(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN {is_id} THEN {worker}
        {no_integer} END{done};

{create} {s}snowflake_sequence(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN {is_id} THEN {sequence}
        {no_integer} END{done};

{create} {s}snowflake_owner(id bigint, OUT home_worker_id integer, OUT lane integer)
    STABLE STRICT PARALLEL SAFE LANGUAGE sql
    {begin} ROW(CASE WHEN {s}snowflake_worker(id) OPERATOR(pg_catalog.<) {owned} THEN {s}snowflake_worker(id) OPERATOR(pg_catalog.%) {homes} END,
        CASE WHEN {s}snowflake_worker(id) OPERATOR(pg_catalog.<) {owned} THEN {s}snowflake_worker(id) OPERATOR(pg_catalog./) {homes} END){done};

{create} {s}snowflake_min(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN ts OPERATOR(pg_catalog.>=) timestamp with time zone '{epoch}+00'
            AND ts OPERATOR(pg_catalog.<) timestamp with time zone '{end}+00'
        THEN ({us_of_ts} OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift}
        {no_time} END{done};

{create} {s}snowflake_max(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} {s}snowflake_min(ts) OPERATOR(pg_catalog.|) {below_time}{done};

{create} {s}snowflake_between_from(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN 0
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {beyond}
        WHEN ts IS NOT NULL THEN
            (({us_of_ts} OPERATOR(pg_catalog.+) {last_us}) OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift} END{done};

{create} {s}snowflake_between_until(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN -1
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {last_id}
        WHEN ts IS NOT NULL THEN
            ((({us_of_ts} OPERATOR(pg_catalog.+) {last_us}) OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift})
            OPERATOR(pg_catalog.-) 1 END{done};

{create} {s}snowflake_between(id bigint, since timestamp with time zone, until timestamp with time zone)
    RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE sql
    {begin} id OPERATOR(pg_catalog.>=) {s}snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) {s}snowflake_between_until(until){done};
