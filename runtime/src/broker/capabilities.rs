/// What a broker can do, as data: the dispatcher, the partition actor and the conformance suite
/// read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Publishing and acknowledging are statements in the database's own transactions. A whole
    /// claim is then published at once; otherwise at most one message per key is unconfirmed at any
    /// time.
    pub transactional: bool,
    /// The broker delivers a partition's queue to one subscriber at a time, beside the lease.
    pub single_active_consumer: bool,
    /// The broker counts redeliveries and sets a message aside that keeps killing its consumer.
    pub delivery_limit: bool,
    /// Messages wait by their slots, not in queues of the partitions: another number of partitions is
    /// only another division of the leases.
    pub by_slot: bool,
    /// The driver makes, binds and removes queues by itself; otherwise an operator does.
    pub provides: bool,
    /// Foreign clients can publish and subscribe.
    pub open_to_others: bool,
}
