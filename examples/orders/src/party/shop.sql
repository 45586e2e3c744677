-- An order as the shop sees it: what the customer wants, and what inventory and billing have said
-- about it so far.
CREATE TABLE IF NOT EXISTS {at}orders (
    order_id         TEXT PRIMARY KEY,
    item             TEXT NOT NULL,
    quantity         BIGINT NOT NULL,
    revision         BIGINT NOT NULL,
    cancelled        BOOLEAN NOT NULL,
    -- 'waiting', 'reserved' or 'short', and the revision that this was said of.
    stock            TEXT NOT NULL,
    stock_revision   BIGINT NOT NULL,
    -- The last invoice's amount, and the revision that it is for.
    invoice_cents    BIGINT,
    invoice_revision BIGINT NOT NULL,
    -- Answers that came, and those that did not follow the one before.
    answers          BIGINT NOT NULL,
    misordered       BIGINT NOT NULL
);
