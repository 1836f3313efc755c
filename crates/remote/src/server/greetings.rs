//! Connections before their token: few, for a short time, and none of them in the way of another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The most connections that have not shown a token, and those of one address.
const MAX_PENDING: usize = 256;
const MAX_PER_ADDRESS: usize = 64;

/// The answer to a wrong token is delayed by the first of these, then by twice as long each time, up to the second.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];

/// Wrong tokens are forgotten after this time, and the oldest beyond this number of addresses.
const MEMORY: Duration = Duration::from_secs(600);
const ADDRESSES: usize = 4096;

/// The connections that are greeting, oldest first, and the addresses of wrong tokens.
#[derive(Default)]
pub(super) struct Greetings {
    pending: Vec<Pending>,
    wrong: HashMap<IpAddr, Wrong>,
    next: u64,
}

struct Pending {
    number: u64,
    address: IpAddr,
    task: AbortHandle,
}

struct Wrong {
    count: u32,
    last: Instant,
}

impl Greetings {
    /// A number for a connection.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A connection greets from now on. Where there are too many, the oldest of the address with the most ends, so that a new
    /// one never waits for silent ones.
    pub(super) fn begin(&mut self, number: u64, address: IpAddr, task: AbortHandle) {
        let address = network(address);
        if self.count(address) >= MAX_PER_ADDRESS {
            self.end_oldest(address);
        } else if self.pending.len() >= MAX_PENDING {
            let crowded = self.pending.iter().map(|pending| pending.address).max_by_key(|of| self.count(*of));
            self.end_oldest(crowded.unwrap_or(address));
        }
        self.pending.push(Pending { number, address, task });
    }

    /// The connection no longer greets.
    pub(super) fn end(&mut self, number: u64) {
        self.pending.retain(|pending| pending.number != number);
    }

    /// Ends all connections that greet.
    pub(super) fn end_all(&mut self) {
        self.pending.drain(..).for_each(|pending| pending.task.abort());
    }

    /// How long to wait with the answer to a wrong token.
    pub(super) fn wrong_token(&mut self, address: IpAddr, now: Instant) -> Duration {
        self.wrong.retain(|_, wrong| now.saturating_duration_since(wrong.last) < MEMORY);
        let address = network(address);
        if self.wrong.len() >= ADDRESSES && !self.wrong.contains_key(&address) {
            let oldest = self.wrong.iter().min_by_key(|(_, wrong)| wrong.last).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| self.wrong.remove(&oldest));
        }
        let wrong = self.wrong.entry(address).or_insert(Wrong { count: 0, last: now });
        let delay = DELAYS[0].saturating_mul(1 << wrong.count.min(16)).min(DELAYS[1]);
        *wrong = Wrong { count: wrong.count.saturating_add(1), last: now };
        delay
    }

    fn count(&self, address: IpAddr) -> usize {
        self.pending.iter().filter(|pending| pending.address == address).count()
    }

    fn end_oldest(&mut self, address: IpAddr) {
        if let Some(place) = self.pending.iter().position(|pending| pending.address == address) {
            self.pending.remove(place).task.abort();
        }
    }
}

/// The part of an address that stands for one client: all of IPv4, and the 64 bits of an IPv6 network, whose rest its owner
/// chooses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(run: impl FnOnce(&mut Greetings, &mut dyn FnMut() -> AbortHandle)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        run(&mut Greetings::default(), &mut || {
            tasks.spawn_on(std::future::pending::<()>(), runtime.handle())
        });
    }

    #[test]
    fn the_oldest_of_a_crowded_address_ends() {
        with(|greetings, task| {
            let honest = [10, 0, 0, 1].into();
            greetings.begin(0, honest, task());
            for number in 1..=1000u64 {
                let number_of_address = (number % 8) as u8;
                greetings.begin(number, [192, 168, 0, number_of_address].into(), task());
            }
            assert_eq!(greetings.pending.len(), MAX_PENDING);
            assert_eq!(greetings.count(honest), 1, "another address is not in its way");
            assert_eq!(greetings.pending.last().unwrap().number, 1000);
            greetings.end(0);
            assert_eq!(greetings.count(honest), 0);
        });
    }

    #[test]
    fn one_address_has_a_part_of_the_places() {
        with(|greetings, task| {
            for number in 0..MAX_PER_ADDRESS as u64 + 1 {
                // Other hosts of one IPv6 network are one client.
                greetings.begin(number, format!("2001:db8::{number:x}").parse().unwrap(), task());
            }
            assert_eq!(greetings.pending.len(), MAX_PER_ADDRESS);
            assert_eq!(greetings.pending[0].number, 1, "the oldest ended");
        });
    }

    #[test]
    fn delays_grow_to_a_bound_and_are_forgotten() {
        let mut greetings = Greetings::default();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let now = Instant::now();
        let delays: Vec<_> = (0..40).map(|_| greetings.wrong_token(one, now)).collect();
        assert!(delays.is_sorted() && delays[0] == DELAYS[0] && delays[39] == DELAYS[1]);
        assert_eq!(greetings.wrong_token(other, now), DELAYS[0]);
        assert_eq!(greetings.wrong_token(one, now + MEMORY), DELAYS[0]);
    }

    #[test]
    fn the_addresses_that_are_remembered_are_bounded() {
        let mut greetings = Greetings::default();
        let now = Instant::now();
        for address in 0..2 * ADDRESSES as u32 {
            greetings.wrong_token(std::net::Ipv4Addr::from(address).into(), now);
        }
        assert_eq!(greetings.wrong.len(), ADDRESSES);
    }
}
