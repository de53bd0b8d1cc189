//! Goal: a peer that does not read its stream costs little, is noticed, and loses its lease.

use crate::client::{Events, NDJSON};
use crate::harness::{Connection, PATIENCE, World, pushed};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use weir::gateway::Options;

#[tokio::test]
async fn a_peer_that_does_not_read_loses_its_lease() {
    let options = Options {
        heartbeat: Duration::from_millis(1),
        write_stall_max: Duration::from_millis(300),
        ..Options::default()
    };
    let world = World::start(BTreeMap::from([("default", pushed(|_| {}))]), options).await;
    world.pool_is("default", 1, 0.0).await;
    // Small buffers on its side: its window is shut after a few heartbeats.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2_048).unwrap();
    let stream = socket.connect(world.addr).await.unwrap();
    let mut deaf = Events::begin(Connection::over(stream), NDJSON, &[], "{}").await;
    deaf.expect("admitted").await;
    let mut lively = Events::open(world.addr, NDJSON, &[], "{}").await;
    lively.expect("admitted").await;
    let began = Instant::now();
    loop {
        let leases = world.pool("default").await["leases"].as_u64().unwrap();
        if leases == 1 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "never noticed");
        let _ = tokio::time::timeout(Duration::from_millis(5), lively.next()).await;
    }
    println!("noticed after {:?}", began.elapsed());
    drop(deaf);
    assert!(lively.heartbeats > 10, "{}", lively.heartbeats);
    assert_eq!(world.pool("default").await["leases"], 1, "whoever reads keeps its lease");
}
