-- Two processes that start at once would both create: IF NOT EXISTS alone does not keep them apart.
SELECT pg_advisory_xact_lock(hashtext('signing.tables'));

-- The service's tables. The schema is named since PostgreSQL looks into the role's own schema
-- first: for a role called posta, into Posta's. Times are microseconds since 1970, by the
-- database's clock.
CREATE TABLE IF NOT EXISTS public.documents (
    id         BIGINT PRIMARY KEY,
    signatures BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS public.signatures (
    request_id  BIGINT PRIMARY KEY,
    document_id BIGINT NOT NULL REFERENCES public.documents,
    number      BIGINT NOT NULL,
    signed_at   BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
);
CREATE TABLE IF NOT EXISTS public.feeds (
    document_id BIGINT PRIMARY KEY,
    entries     BIGINT NOT NULL
);
-- Not unique by request_id, on purpose: if a message took effect twice, it would show.
CREATE TABLE IF NOT EXISTS public.notifications (
    document_id BIGINT NOT NULL,
    entry       BIGINT NOT NULL,
    request_id  BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    written_at  BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    PRIMARY KEY (document_id, entry)
);
CREATE TABLE IF NOT EXISTS public.mailboxes (
    document_id BIGINT PRIMARY KEY,
    mails       BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS public.mails (
    document_id BIGINT NOT NULL,
    place       BIGINT NOT NULL,
    entry       BIGINT NOT NULL,
    request_id  BIGINT NOT NULL,
    PRIMARY KEY (document_id, place)
);

-- The main job's own tables: what it is to do, and how far it has come.
CREATE TABLE IF NOT EXISTS public.run (
    id         BIGINT PRIMARY KEY CHECK (id = 1),
    documents  BIGINT NOT NULL,
    keys       BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    seed       BIGINT NOT NULL,
    kills      BIGINT NOT NULL,
    finished   BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS public.run_copies (
    request_id BIGINT PRIMARY KEY,
    message_id TEXT NOT NULL,
    enqueued   BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS public.run_lines (
    document_id BIGINT NOT NULL,
    round       BIGINT NOT NULL,
    notified    BIGINT NOT NULL,
    mailed      BIGINT NOT NULL,
    PRIMARY KEY (document_id, round)
);
