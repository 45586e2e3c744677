CREATE TABLE IF NOT EXISTS {at}accounts (
    order_id   TEXT PRIMARY KEY,
    unit_cents BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    cancelled  BOOLEAN NOT NULL,
    -- Events that did not follow the one before.
    misordered BIGINT NOT NULL
);
-- No unique key on purpose: if an invoice were issued twice, it would show.
CREATE TABLE IF NOT EXISTS {at}invoices (
    order_id TEXT NOT NULL,
    revision BIGINT NOT NULL,
    cents    BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS invoices_order ON {at}invoices (order_id);
