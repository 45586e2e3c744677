use std::fmt;

/// What has become of the orders, summed up over all parties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) orders: i64,
    pub(crate) changed: i64,
    pub(crate) cancelled: i64,
    pub(crate) reserved: i64,
    pub(crate) short: i64,
    pub(crate) invoiced: i64,
    pub(crate) invoiced_cents: i64,
    /// Orders of which somebody has not heard everything yet.
    pub(crate) waiting: i64,
    /// Answers and invoices beyond one for each event.
    pub(crate) doubled: i64,
    /// Events and answers that did not follow the one before.
    pub(crate) misordered: i64,
    /// What one party's books say against another's.
    pub(crate) disagreements: Vec<String>,
}

impl Ledger {
    /// Whether everything has arrived everywhere, once and in order, and the books agree.
    pub(crate) fn is_right(&self) -> bool {
        self.waiting == 0
            && self.doubled == 0
            && self.misordered == 0
            && self.disagreements.is_empty()
            && self.reserved + self.short + self.cancelled == self.orders
            && self.invoiced + self.cancelled == self.orders
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: i64| writeln!(f, "  {name:<24}{count:>8}");
        line("orders", self.orders)?;
        line("  changes", self.changed)?;
        line("  cancelled", self.cancelled)?;
        line("reserved", self.reserved)?;
        line("short", self.short)?;
        line("invoiced", self.invoiced)?;
        line("  cents", self.invoiced_cents)?;
        line("waiting", self.waiting)?;
        line("doubled", self.doubled)?;
        line("out of order", self.misordered)?;
        for disagreement in &self.disagreements {
            writeln!(f, "  {disagreement}")?;
        }
        f.write_str(match self.is_right() {
            true => "  every event once and in order, and the books agree",
            false if self.doubled == 0 && self.misordered == 0 => "  not everything has arrived",
            false => "  NOT as it must be",
        })
    }
}
