//! A small authoritative name server on loopback, over UDP, whose records the test changes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// Records by name, in lower case and with the final dot.
type Zone = HashMap<String, Vec<RData>>;

/// A name server. Its thread ends with the process.
pub struct NameServer {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    queries: Arc<AtomicUsize>,
}

impl NameServer {
    /// A name server whose records have this TTL in seconds.
    pub fn start(ttl: u32) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (zone, queries) = (Arc::new(Mutex::new(Zone::new())), Arc::new(AtomicUsize::new(0)));
        let (records, count) = (Arc::clone(&zone), Arc::clone(&queries));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::SeqCst);
                let query = Message::from_vec(&buffer[..length]).unwrap();
                let reply = answer(&query, &records.lock().unwrap(), ttl);
                socket.send_to(&reply.to_vec().unwrap(), client).unwrap();
            }
        });
        Self { address, zone, queries }
    }

    /// Sets the addresses of a name, which replace those of before.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let records = addresses.iter().map(|address| match address.parse().unwrap() {
            IpAddr::V4(address) => RData::A(address.into()),
            IpAddr::V6(address) => RData::AAAA(address.into()),
        });
        self.zone.lock().unwrap().insert(format!("{name}."), records.collect());
    }

    /// Sets the SRV records of a name, of weight 0: priority, port and target of each.
    pub fn set_service(&self, name: &str, targets: &[(u16, u16, &str)]) {
        let unweighted = targets.iter().map(|(priority, port, target)| (*priority, 0, *port, *target));
        self.set_weighted_service(name, &unweighted.collect::<Vec<_>>());
    }

    /// Sets the SRV records of a name: priority, weight, port and target of each.
    pub fn set_weighted_service(&self, name: &str, targets: &[(u16, u16, u16, &str)]) {
        let record = |(priority, weight, port, target): &(u16, u16, u16, &str)| {
            RData::SRV(SRV::new(*priority, *weight, *port, format!("{target}.").parse().unwrap()))
        };
        self.zone.lock().unwrap().insert(format!("{name}."), targets.iter().map(record).collect());
    }

    /// Removes a name: it does not exist any more.
    pub fn remove(&self, name: &str) {
        self.zone.lock().unwrap().remove(&format!("{name}."));
    }

    /// Number of queries so far.
    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

fn answer(query: &Message, zone: &Zone, ttl: u32) -> Message {
    let mut reply = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
    reply.metadata.authoritative = true;
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    let question = query.queries[0].clone();
    let (name, kind): (Name, RecordType) = (question.name().clone(), question.query_type());
    reply.add_query(question);
    match zone.get(&name.to_string().to_lowercase()) {
        None => reply.metadata.response_code = ResponseCode::NXDomain,
        Some(records) => {
            for data in records.iter().filter(|data| data.record_type() == kind) {
                reply.add_answer(Record::from_rdata(name.clone(), ttl, data.clone()));
            }
        }
    }
    reply
}
