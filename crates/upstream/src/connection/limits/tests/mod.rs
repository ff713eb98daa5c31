//! Tests of the limits over several workers.

mod histories;
mod threads;

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::*;

fn bounds(max: usize) -> ConnectionBounds {
    ConnectionBounds { max: Some(max), ..ConnectionBounds::default() }
}

/// Links of so many workers to one endpoint.
fn links(workers: usize, bounds: &ConnectionBounds) -> Vec<EndpointLink> {
    let (limiter, endpoint) = (Arc::<ConnectionLimiter>::default(), Arc::default());
    let link = |_| {
        let link = EndpointLink::new(&WorkerLink::new(&limiter, workers), &endpoint);
        link.worker.set_bounds(bounds, std::iter::once(&link));
        link
    };
    (0..workers).map(link).collect()
}

/// Enqueues a request for which there is no room.
fn enqueue(link: &EndpointLink) -> QueuePlace {
    match link.worker.acquire(vec![link.clone()], false).unwrap() {
        Acquisition::Queued(place) => place,
        Acquisition::Permit(..) => panic!("there is no room"),
    }
}

/// Permit that a request gets when its worker is woken.
fn granted(link: &EndpointLink, place: &mut QueuePlace) -> Option<ConnectionPermit> {
    link.worker.grant_permits();
    place.take_late().map(|grant| match grant {
        Grant::Permit(0, permit) => permit,
        other => panic!("{other:?}"),
    })
}

fn is_woken(link: &EndpointLink) -> bool {
    link.worker.woken().now_or_never().is_some()
}

/// Offers idle connections, the last one first, and drops those that are to be closed. Returns their number.
fn offer_all(link: &EndpointLink, idle: &mut Vec<ConnectionPermit>) -> usize {
    let mut closed = Vec::new();
    while let Some(permit) = idle.pop() {
        match link.offer() {
            IdleUse::Keep => {
                idle.push(permit);
                break;
            }
            IdleUse::Close => {
                permit.closing_mark().set();
                closed.push(permit);
            }
            IdleUse::HandTo(_) => panic!("no request of this worker waits"),
        }
    }
    closed.len()
}

/// With `max: 8` and two workers, each has two connections for certain, and the other four are for both.
#[test]
fn idle_worker_keeps_its_share_and_returns_the_rest_to_a_worker_with_a_queue() {
    let links = links(2, &bounds(8));
    let idle_worker = &links[0];
    let worker = &links[1];
    let mut idle: Vec<_> = std::iter::from_fn(|| idle_worker.try_acquire()).collect();
    assert_eq!(idle.len(), 6, "the share and all of the rest, and nothing of the other share");
    let _share = [worker.try_acquire().expect("guaranteed"), worker.try_acquire().expect("guaranteed")];
    assert!(worker.try_acquire().is_none() && offer_all(idle_worker, &mut idle) == 0, "no request waits");
    let mut queue: Vec<_> = (0..3).map(|_| enqueue(worker)).collect();
    assert!(is_woken(idle_worker) && idle_worker.needs_offers());
    assert_eq!(offer_all(idle_worker, &mut idle), 3, "one for each request that waits");
    assert!(is_woken(worker), "connections were closed");
    let mut open: Vec<_> = queue.iter_mut().map(|place| granted(worker, place).expect("there is room")).collect();
    assert!(!idle_worker.needs_offers(), "none waits");
    let mut more = [enqueue(worker), enqueue(worker)];
    assert_eq!((offer_all(idle_worker, &mut idle), idle.len()), (1, 2), "its share stays");
    open.extend(granted(worker, &mut more[0]));
    assert_eq!(open.len(), 4);
    assert!(granted(worker, &mut more[1]).is_none(), "eight are open");
}

#[test]
fn connections_of_a_worker_go_to_its_own_requests_in_their_order() {
    let links = links(2, &bounds(2));
    let [_open, _other] = [links[0].try_acquire(), links[1].try_acquire()];
    let _other_first = enqueue(&links[1]);
    let first = enqueue(&links[0]);
    let second = enqueue(&links[0]);
    for place in [&first, &second] {
        assert!(matches!(links[0].offer(), IdleUse::HandTo(request) if request.id() == place.id()));
    }
    assert!(matches!(links[0].offer(), IdleUse::Keep), "it is the worker's share");
}

#[test]
fn request_that_needs_a_new_connection_gets_the_place_of_an_idle_one() {
    let links = links(1, &bounds(1));
    let mut idle = vec![links[0].try_acquire().unwrap()];
    let Ok(Acquisition::Queued(mut place)) = links[0].worker.acquire(vec![links[0].clone()], true) else {
        panic!("there is no room")
    };
    assert!(links[0].take_local().is_none());
    assert_eq!(offer_all(&links[0], &mut idle), 1);
    assert!(granted(&links[0], &mut place).is_some());
}

#[test]
fn queue_is_bounded_over_all_workers_and_a_request_that_leaves_makes_room() {
    let links = links(2, &ConnectionBounds { max_waiting: 1, ..bounds(2) });
    let _open = [links[0].try_acquire().unwrap(), links[1].try_acquire().unwrap()];
    let place = enqueue(&links[0]);
    assert_eq!(links[1].worker.acquire(vec![links[1].clone()], false).unwrap_err(), QueueFull);
    drop(place);
    enqueue(&links[1]);
}

#[test]
fn permit_of_a_request_that_has_left_goes_to_the_next() {
    let links = links(1, &bounds(1));
    let open = links[0].try_acquire();
    let first = enqueue(&links[0]);
    let mut second = enqueue(&links[0]);
    drop(open);
    links[0].worker.grant_permits();
    drop(first);
    assert!(is_woken(&links[0]) && granted(&links[0], &mut second).is_some());
}

#[test]
fn request_that_comes_later_leaves_the_room_to_those_that_wait() {
    let links = links(1, &bounds(1));
    let open = links[0].try_acquire();
    let mut first = enqueue(&links[0]);
    drop(open);
    assert!(links[0].try_acquire().is_none());
    assert!(granted(&links[0], &mut first).is_some());
}

#[test]
fn changed_bounds_serve_the_queue_or_close_what_is_beyond_them() {
    let links = links(1, &bounds(1));
    let set_max = |max| links[0].worker.set_bounds(&bounds(max), links.iter());
    let mut idle: Vec<_> = links[0].try_acquire().into_iter().collect();
    let mut place = enqueue(&links[0]);
    set_max(3);
    assert!(is_woken(&links[0]));
    idle.push(granted(&links[0], &mut place).expect("there is room"));
    idle.extend(links[0].try_acquire());
    assert!(idle.len() == 3 && !links[0].needs_offers());
    set_max(1);
    assert!(is_woken(&links[0]) && links[0].needs_offers());
    assert_eq!((offer_all(&links[0], &mut idle), links[0].needs_offers()), (2, false));
}
