CREATE TABLE IF NOT EXISTS {at}stock (
    item      TEXT PRIMARY KEY,
    initial   BIGINT NOT NULL,
    available BIGINT NOT NULL CHECK (available >= 0)
);
-- What is reserved for an order as of a revision; nothing if there was not enough.
CREATE TABLE IF NOT EXISTS {at}reservations (
    order_id   TEXT PRIMARY KEY,
    item       TEXT NOT NULL,
    quantity   BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    -- Events that did not follow the one before.
    misordered BIGINT NOT NULL
);
