-- Gives documents with a uuid key, and the comments that reference them, snowflake IDs, with short locks only:
-- docs/migration.md. Copy the statements that follow "1.", with your names. DROP COLUMN also drops what contains the
-- column: try them on a copy, and create again what is missing in pg_dump -s.

CREATE TABLE documents (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    title      text,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE comments (
    id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    document uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    text     text
);
CREATE INDEX comments_document_idx ON comments (document);
COMMENT ON COLUMN comments.document IS 'its subject';
GRANT SELECT (document) ON comments TO PUBLIC;
INSERT INTO documents (title, created_at)
SELECT 'Document ' || i, now() - i * interval '1 hour' FROM generate_series(1, 1000) AS i;
INSERT INTO comments (document, text) SELECT id, 'On ' || title FROM documents;

-- 1. In two statements, because ADD COLUMN with this default would rewrite the table. New rows then have an ID. A trigger
-- does the same for comments. Their new column has the old one's comment and grants.
BEGIN;
SET LOCAL lock_timeout = '2s';
ALTER TABLE documents ADD COLUMN new_id bigint;
ALTER TABLE documents ALTER COLUMN new_id SET DEFAULT snowflake_nextval();
ALTER TABLE comments ADD COLUMN new_document bigint;
COMMENT ON COLUMN comments.new_document IS 'its subject';
GRANT SELECT (new_document) ON comments TO PUBLIC;
CREATE FUNCTION new_document() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN new.new_document := (SELECT new_id FROM documents WHERE id = new.document); RETURN new; END';
CREATE TRIGGER new_document BEFORE INSERT OR UPDATE ON comments FOR EACH ROW EXECUTE FUNCTION new_document();
COMMIT;

-- 2. The oldest rows first, so that the IDs follow the order of creation. Repeat each UPDATE until it says UPDATE 0, in
-- one session, the documents before the comments. For the comments, the trigger fills in the value.
CREATE INDEX CONCURRENTLY documents_to_do ON documents (created_at) WHERE new_id IS NULL;
CREATE INDEX CONCURRENTLY comments_to_do ON comments (id) WHERE new_document IS NULL;
WITH batch AS MATERIALIZED (
    SELECT id FROM documents WHERE new_id IS NULL ORDER BY created_at LIMIT 1000 FOR UPDATE
), numbered AS MATERIALIZED (
    SELECT id, snowflake_nextval() AS new_id FROM batch
)
UPDATE documents d SET new_id = n.new_id FROM numbered n WHERE d.id = n.id;
UPDATE comments SET new_document = NULL
WHERE id IN (SELECT id FROM comments WHERE new_document IS NULL ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED);

-- 3. Without a long lock. The constraints prove that no value is missing. Queries find a uuid by documents_public_id later.
DROP INDEX CONCURRENTLY documents_to_do;
DROP INDEX CONCURRENTLY comments_to_do;
CREATE UNIQUE INDEX CONCURRENTLY documents_public_id ON documents (id);
CREATE UNIQUE INDEX CONCURRENTLY new_id ON documents (new_id);
CREATE INDEX CONCURRENTLY new_document ON comments (new_document);
SET lock_timeout = '2s';
ALTER TABLE documents ADD CONSTRAINT new_id_is_set CHECK (new_id IS NOT NULL) NOT VALID;
ALTER TABLE documents VALIDATE CONSTRAINT new_id_is_set;
ALTER TABLE comments ADD CONSTRAINT new_document_is_set CHECK (new_document IS NOT NULL) NOT VALID;
ALTER TABLE comments VALIDATE CONSTRAINT new_document_is_set;
ALTER TABLE comments ADD CONSTRAINT new_document
    FOREIGN KEY (new_document) REFERENCES documents (new_id) ON DELETE CASCADE NOT VALID;
ALTER TABLE comments VALIDATE CONSTRAINT new_document;
ANALYZE documents, comments;

-- 4. Switch, together with the application. public_id keeps the old key and its default.
BEGIN;
SET LOCAL lock_timeout = '2s';
LOCK TABLE documents, comments IN ACCESS EXCLUSIVE MODE;
DROP FUNCTION new_document CASCADE;
ALTER TABLE comments DROP COLUMN document;
ALTER TABLE comments RENAME COLUMN new_document TO document;
ALTER TABLE comments ALTER COLUMN document SET NOT NULL;
ALTER TABLE comments DROP CONSTRAINT new_document_is_set;
ALTER TABLE comments RENAME CONSTRAINT new_document TO comments_document_fkey;
ALTER INDEX new_document RENAME TO comments_document_idx;
ALTER TABLE documents DROP CONSTRAINT documents_pkey;
ALTER TABLE documents RENAME COLUMN id TO public_id;
ALTER TABLE documents RENAME COLUMN new_id TO id;
ALTER TABLE documents ADD CONSTRAINT documents_pkey PRIMARY KEY USING INDEX new_id;
ALTER TABLE documents DROP CONSTRAINT new_id_is_set;
COMMIT;

-- Comments have their documents, and the order of IDs is that of creation.
INSERT INTO documents (title) VALUES ('The first with an ID of its own');
DO $$ BEGIN
    ASSERT (SELECT (count(*), count(*) FILTER (WHERE text = 'On ' || title)) = (1000, 1000)
            FROM comments c JOIN documents d ON d.id = c.document);
    ASSERT (SELECT bool_and(follows)
            FROM (SELECT id > coalesce(lag(id) OVER (ORDER BY created_at), 0) AS follows FROM documents) AS d);
END $$;
