use std::fmt;

/// What stands where, as the tables have it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) accounts: Vec<Account>,
}

/// The postings of one account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    /// Received by the bank: each is a row of its own, and was enqueued with it.
    pub(crate) received: i64,
    /// Booked.
    pub(crate) booked: i64,
    /// In the retry table, to be tried again: its key's head.
    pub(crate) retrying: i64,
    /// Set aside.
    pub(crate) dead: i64,
    /// In the retry table, behind the head or behind the dead letter.
    pub(crate) behind: i64,
    /// Of the dead letters: replayed, and through.
    pub(crate) replayed: i64,
    /// Of the dead letters: dropped by an operator.
    pub(crate) discarded: i64,
    pub(crate) balance_cents: i64,
    /// Booked more than once.
    pub(crate) doubled: i64,
    /// Booked after a later one.
    pub(crate) misordered: i64,
}

impl Account {
    /// In the outbox, or at the broker: whatever is nowhere else.
    pub(crate) fn on_its_way(&self) -> i64 {
        self.received - self.booked - self.retrying - self.dead - self.behind - self.discarded
    }

    fn is_done(&self) -> bool {
        self.booked + self.discarded == self.received && self.doubled == 0 && self.misordered == 0
    }
}

impl Standing {
    /// Whether nothing waits anywhere, and everything was booked once and in order.
    pub(crate) fn is_done(&self) -> bool {
        self.accounts.iter().all(Account::is_done)
    }

    /// Whether nothing is wrong for good: whatever waits or is dead can still be booked.
    pub(crate) fn is_sound(&self) -> bool {
        let is_sound = |account: &Account| account.doubled == 0 && account.misordered == 0;
        self.accounts.iter().all(is_sound)
    }

    /// Booked, dead, and behind, of each account: what the story expects.
    pub(crate) fn summary(&self) -> Vec<(i64, i64, i64)> {
        let of_account = |account: &Account| (account.booked, account.dead, account.behind);
        self.accounts.iter().map(of_account).collect()
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<24}", "")?;
        for account in &self.accounts {
            write!(f, "{:>12}", account.name)?;
        }
        type Count = fn(&Account) -> i64;
        let counts: [(&str, Count); 10] = [
            ("received", |account| account.received),
            ("booked", |account| account.booked),
            ("on its way", Account::on_its_way),
            ("waits for a try", |account| account.retrying),
            ("dead letter", |account| account.dead),
            ("waits behind it", |account| account.behind),
            ("replayed", |account| account.replayed),
            ("discarded", |account| account.discarded),
            ("doubled", |account| account.doubled),
            ("out of order", |account| account.misordered),
        ];
        for (name, count) in counts {
            write!(f, "\n  {name:<24}")?;
            for account in &self.accounts {
                write!(f, "{:>12}", count(account))?;
            }
        }
        write!(f, "\n  {:<24}", "balance")?;
        for account in &self.accounts {
            let (whole, cents) = (account.balance_cents / 100, account.balance_cents % 100);
            write!(f, "{:>12}", format!("{whole}.{cents:02}"))?;
        }
        Ok(())
    }
}
