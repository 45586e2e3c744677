-- What was received, each with its message in the same transaction.
CREATE TABLE IF NOT EXISTS {at}received (
    account TEXT NOT NULL,
    number  BIGINT NOT NULL,
    amount  TEXT NOT NULL,
    PRIMARY KEY (account, number)
);
-- No unique key on purpose: if a posting were booked twice, it would show.
CREATE TABLE IF NOT EXISTS {at}bookings (
    account       TEXT NOT NULL,
    number        BIGINT NOT NULL,
    cents         BIGINT NOT NULL,
    -- The account's balance after it.
    balance_cents BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS {at}accounts (
    account       TEXT PRIMARY KEY,
    -- The last posting that was booked.
    number        BIGINT NOT NULL,
    balance_cents BIGINT NOT NULL,
    -- Postings that did not follow the one before.
    misordered    BIGINT NOT NULL
);
