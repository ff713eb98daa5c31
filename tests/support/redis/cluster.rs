//! A Redis Cluster.

use std::collections::HashSet;

use ::redis::cmd;

use super::{Options, Redis, until};

const SLOTS: usize = 16_384;
/// Silence of a node after which the others replace it, in milliseconds.
const NODE_TIMEOUT: &str = "1000";
/// Time-out of moving a key between nodes, in milliseconds.
const MIGRATION: u64 = 5_000;

/// Primaries that share the slots evenly and in order, and their replicas.
///
/// - When it is returned all nodes agree, accept commands, and replicas are linked to their primaries.
/// - The primary of a slot is looked up each time, because it changes when nodes die.
pub struct Cluster {
    nodes: Vec<Redis>,
}

/// A node as one of them sees it: a line of `CLUSTER NODES`.
struct Seen {
    id: String,
    flags: HashSet<String>,
    /// The id of its primary; `-` for a primary.
    follows: String,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts it, and waits until it works: about three seconds.
    pub fn start(primaries: usize, replicas_per_primary: usize) -> Self {
        Self::start_with(Redis::options(), primaries, replicas_per_primary)
    }

    /// The same, every node with these options.
    pub fn start_with(options: Options, primaries: usize, replicas_per_primary: usize) -> Self {
        let options = options
            .arg("cluster-enabled", "yes")
            .arg("cluster-announce-ip", "127.0.0.1")
            .arg("cluster-node-timeout", NODE_TIMEOUT)
            .arg("repl-diskless-sync-delay", "0");
        let cluster = Self { nodes: options.start_many(primaries * (1 + replicas_per_primary)) };
        cluster.share_slots(primaries);
        cluster.introduce();
        cluster.assign_replicas(primaries);
        until("the cluster works", || cluster.works(primaries).then_some(()));
        cluster
    }

    fn share_slots(&self, primaries: usize) {
        for (number, node) in self.nodes[..primaries].iter().enumerate() {
            let (first, end) = (SLOTS * number / primaries, SLOTS * (number + 1) / primaries);
            node.cli::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
            // Else they would have to find out whose claims rule.
            node.cli::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
    }

    /// Every node to every other: gossip would take longer.
    fn introduce(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..number] {
                node.cli::<()>(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
    }

    fn assign_replicas(&self, primaries: usize) {
        for (number, node) in self.nodes[primaries..].iter().enumerate() {
            let primary = id(&self.nodes[number % primaries]);
            // Until they have met.
            until("a replica finds its primary", || node.try_cli::<()>(&["CLUSTER", "REPLICATE", &primary]).ok());
        }
    }

    fn works(&self, primaries: usize) -> bool {
        let replicas = self.nodes.len() - primaries;
        self.nodes.iter().all(|node| {
            let seen = nodes_seen_by(node);
            node.info("cluster", "cluster_enabled") == "1"
                && is_ok(node)
                && seen.len() == self.nodes.len()
                && seen
                    .iter()
                    .all(|seen| seen.flags.iter().all(|flag| ["myself", "master", "slave"].contains(&&**flag)))
                && seen.iter().filter(|seen| seen.flags.contains("slave")).count() == replicas
                && (node.info("replication", "role") == "master"
                    || node.info("replication", "master_link_status") == "up")
        })
    }

    /// All nodes, those that are down among them: first those that began as primaries.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// The nodes that hold slots now, in the order of [`Self::nodes`].
    pub fn primaries(&self) -> Vec<&Redis> {
        let holds = |node: &&Redis| is_primary(node) && !myself(node).slots.is_empty();
        self.running().filter(holds).collect()
    }

    /// The replicas of a primary that run now.
    pub fn replicas_of(&self, primary: &Redis) -> Vec<&Redis> {
        let id = id(primary);
        self.running().filter(|node| myself(node).follows == id).collect()
    }

    /// The node that holds a slot; waits until there is one.
    pub fn primary_of(&self, slot: u16) -> &Redis {
        until("a node holds the slot", || self.holder(slot))
    }

    /// Waits until a slot is held by another node than this one, which may be down.
    pub fn until_other_primary(&self, slot: u16, than: &Redis) -> &Redis {
        let other = || self.holder(slot).filter(|node| node.port() != than.port());
        until("another node holds the slot", other)
    }

    /// Waits until all nodes that run accept commands.
    pub fn until_ok(&self) {
        until("the cluster is ok", || self.running().all(is_ok).then_some(()));
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.running().next().expect("a node runs");
        node.cli(&["CLUSTER", "KEYSLOT", key])
    }

    /// Moves a slot with its keys from one primary to another, and waits until all nodes know.
    pub fn move_slot(&self, slot: u16, from: &Redis, to: &Redis) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to, usize::MAX);
        self.end_move(slot, from, to);
    }

    /// Begins to move a slot: for a key that it does not have, `from` answers `ASK` from now on.
    pub fn begin_move(&self, slot: u16, from: &Redis, to: &Redis) {
        let slot = slot.to_string();
        to.cli::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.cli::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves at most so many keys of a slot whose move has begun; returns how many.
    pub fn move_keys(&self, slot: u16, from: &Redis, to: &Redis, at_most: usize) -> usize {
        let count = at_most.min(from.cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]));
        let keys: Vec<Vec<u8>> = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &count.to_string()]);
        for key in &keys {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(to.port()).arg(key).arg(0).arg(MIGRATION);
            if let Some(password) = to.password() {
                migrate.arg("AUTH").arg(password);
            }
            from.query::<()>(&migrate).unwrap();
        }
        keys.len()
    }

    /// Ends the move of a slot that has no keys left at `from`, and waits until all nodes know.
    pub fn end_move(&self, slot: u16, from: &Redis, to: &Redis) {
        let (number, new) = (slot.to_string(), id(to));
        let others = self.primaries().into_iter().filter(|node| ![from.port(), to.port()].contains(&node.port()));
        // The new holder first: in the other order, no node would hold the slot for a moment.
        for node in [to, from].into_iter().chain(others) {
            node.cli::<()>(&["CLUSTER", "SETSLOT", &number, "NODE", &new]);
        }
        let knows = |node: &Redis| nodes_seen_by(node).iter().any(|seen| seen.id == new && seen.holds(slot));
        until("all nodes know who holds the slot", || self.running().all(knows).then_some(()));
    }

    /// Of the running nodes that say they hold a slot, the one that said so last: one that was stopped still does.
    fn holder(&self, slot: u16) -> Option<&Redis> {
        let claims = self.running().filter(|node| is_primary(node)).map(|node| (myself(node), node));
        claims.filter(|(seen, _)| seen.holds(slot)).max_by_key(|(seen, _)| seen.epoch).map(|(_, node)| node)
    }

    fn running(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.is_running())
    }
}

impl Seen {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _address, flags, follows, _sent, _received, epoch, _link, slots @ ..] = &words[..] else {
            panic!("not a line of CLUSTER NODES: {line}");
        };
        // A slot on its way is in brackets; who holds it has it among the others, too.
        let slots = slots.iter().filter(|range| !range.starts_with('[')).map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse().unwrap(), last.parse().unwrap())
        });
        Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            follows: (*follows).to_owned(),
            epoch: epoch.parse().unwrap(),
            slots: slots.collect(),
        }
    }

    fn holds(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

fn id(node: &Redis) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

fn is_ok(node: &Redis) -> bool {
    node.cli::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
}

fn is_primary(node: &Redis) -> bool {
    myself(node).flags.contains("master")
}

fn myself(node: &Redis) -> Seen {
    nodes_seen_by(node).into_iter().find(|seen| seen.flags.contains("myself")).expect("a node sees itself")
}

fn nodes_seen_by(node: &Redis) -> Vec<Seen> {
    node.cli::<String>(&["CLUSTER", "NODES"]).lines().map(Seen::parse).collect()
}
