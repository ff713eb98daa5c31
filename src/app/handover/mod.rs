//! Hand-over (hot restart): a new process takes the place of an old one of the same configuration,
//! and no client notices.
//!
//! Both speak over the admin socket, which only the user of the gateway may open. One message is one step:
//!
//! | old process | message | new process |
//! |---|---|---|
//! | serves | ← `Hello`: version, configuration | reads its configuration |
//! | serves, or refuses: `Refused` | `Listeners` → (open files) | binds nothing |
//! | serves | ← `Ready` | has certificates, endpoints; on Redis, the state |
//! | **freezes**: decides nothing, writes back, lines of the journal go to a spool | `Locks` → (open files) | |
//! | frozen: requests at an embedded state wait | ← `Prepared` | has read the state; has written nothing |
//! | frozen | `Commit` → | opens the journal, starts its threads, accepts connections |
//! | **leaves** the locks, the listeners, and its place at systemd | ← `Serving`, `Relinquished` → | |
//! | drains; asks the new one for decisions (embedded state) | [`link`] | decides; merges the spool |
//!
//! | event | before `Commit` | before `Serving` | later |
//! |---|---|---|---|
//! | the new process ends or is killed | the old one goes on as before | it goes on, if nothing was recorded; else it drains | as the death of any gateway |
//! | the new process is silent for [`channel::STEP_TIMEOUT`] | the old one goes on, and the new one may not | it is killed, then as above; one that cannot be killed has five seconds more, then the old one drains | |
//! | the old process is killed | the new one ends; it has written nothing | the new one closes its open uses as aborted, and frees its slots | the same |
//! | another version, another configuration, a second hand-over | `Refused`: the old one goes on | | |
//!
//! - Both hold the locks from `Locks` to `Serving`, as copies of the same open files: no third process gets in between.
//! - The listening sockets stay open all the time: connections wait in their queues, and either
//!   process may accept them.
//! - The new process counts the slots of the old one's requests from the uses that are open in the journal.

mod channel;
mod message;
mod progress;
mod peer;
mod steps;
mod old_process;
mod new_process;
mod link;
mod upgrade;
mod control;

pub(super) use control::HandoverControl;
pub(super) use new_process::{Locks, Takeover};
pub(super) use old_process::HandoverParts;
