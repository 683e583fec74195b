-- A domain whose values PostgREST 12 writes into JSON as text, and reads from text. PostgreSQL warns that it ignores casts
-- of a domain: they are for PostgREST. Use the domain in the views of PostgREST's schema, as for orders at the end.
CREATE DOMAIN id_as_text AS bigint;
CREATE FUNCTION id_to_json(id_as_text) RETURNS json IMMUTABLE LANGUAGE sql RETURN to_json($1::bigint::text);
CREATE FUNCTION id_as_text(json) RETURNS id_as_text IMMUTABLE LANGUAGE sql RETURN ($1 #>> '{}')::bigint;
CREATE FUNCTION id_as_text(text) RETURNS id_as_text IMMUTABLE LANGUAGE sql RETURN $1::bigint;
CREATE CAST (id_as_text AS json) WITH FUNCTION id_to_json(id_as_text) AS IMPLICIT;
CREATE CAST (json AS id_as_text) WITH FUNCTION id_as_text(json) AS IMPLICIT;
CREATE CAST (text AS id_as_text) WITH FUNCTION id_as_text(text) AS IMPLICIT;
CREATE SCHEMA api;
CREATE VIEW api.orders AS SELECT id::id_as_text, customer FROM orders;
