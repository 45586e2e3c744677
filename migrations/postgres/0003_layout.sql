-- Posta's tables, version 3: the number of a consumer's partitions changes while it runs.

-- How many partitions each consumer has, for all its processes, and the step of a change of that.
CREATE TABLE {posta}layout (
    consumer   text NOT NULL,
    -- The layout in use: which one since the first, which is 1, and its number of partitions.
    generation integer NOT NULL DEFAULT 1,
    partitions smallint NOT NULL,
    step       text NOT NULL DEFAULT 'rest',
    -- The layout that it moves to; in the step clearing, the one that it has moved from.
    other      smallint,
    -- Which partitions are drained: bit n is partition n.
    drained    bigint NOT NULL DEFAULT 0,
    -- One more at each step.
    epoch      bigint NOT NULL DEFAULT 1,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT layout_pkey PRIMARY KEY (consumer),
    CONSTRAINT layout_generation_range CHECK (generation >= 1),
    CONSTRAINT layout_partitions_range CHECK (partitions BETWEEN 1 AND 64),
    CONSTRAINT layout_step CHECK (step IN ('rest', 'binding', 'draining', 'releasing', 'clearing')),
    CONSTRAINT layout_other_range CHECK (other BETWEEN 1 AND 64 AND other <> partitions),
    CONSTRAINT layout_rest_has_no_other CHECK ((step = 'rest') = (other IS NULL)),
    CONSTRAINT layout_drained_while_draining CHECK (drained = 0 OR step = 'draining')
) WITH (fillfactor = 50);

-- The processes of each consumer, and how many partitions each is configured with.
CREATE TABLE {posta}layout_wish (
    consumer   text NOT NULL,
    member     uuid NOT NULL,
    partitions smallint NOT NULL,
    -- The epoch of the layout that the broker's queues were last seen to by this process.
    epoch      bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL,
    CONSTRAINT layout_wish_pkey PRIMARY KEY (consumer, member),
    CONSTRAINT layout_wish_partitions_range CHECK (partitions BETWEEN 1 AND 64)
) WITH (fillfactor = 50);
