//! Models of what is told of a request's end, in every order of threads (`make loom`).

use super::request::{request, Request};
use super::request_record::{Notified, Outcome, Requests};
use crate::runtime::base::queue::Queue;
use crate::runtime::base::sync::{lock, Arc, Mutex};
use crate::runtime::loom_test::every_order;
use loom::thread;

type Notices = Queue<Notified, thread::JoinHandle<()>>;

#[test]
fn a_wait_for_any_of_two_ends_with_one_and_a_wait_for_all_with_both() {
    every_order(|| {
        let ((one, first), (other, second)) = (request(), request());
        let threads = [first, second].map(|completer| thread::spawn(move || completer.complete(Ok(None))));
        let found = Request::wait_any(&[&one, &other], None).unwrap().expect("a wait without limit ends with one");
        assert_eq!(found.1, Ok(None) as Outcome);
        assert_eq!(Request::wait_all(&[&one, &other], None), Ok(true));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!([&one, &other].iter().all(|request| lock(&request.record.state).several.is_empty()));
    });
}

/// A function that is asked for while the operation ends is called once, and the thread that frees the request waits
/// for that.
#[test]
fn a_function_is_called_once_before_its_request_is_free() {
    every_order(|| {
        let (requests, notices, called) = (Requests::default(), Arc::new(Notices::default()), Arc::new(Mutex::new(0)));
        let (request, completer) = requests.make();
        let operation = thread::spawn(move || completer.complete(Ok(None)));
        let start = || {
            let (notices, called) = (Arc::clone(&notices), Arc::clone(&called));
            Ok(thread::spawn(move || {
                while let Some(notified) = notices.next() {
                    *lock(&called) += 1;
                    drop(notified);
                }
            }))
        };
        notices.promise(start).unwrap().expect("nothing has ended");
        let theirs = Arc::clone(&notices);
        request.tell_by(move |notified| drop(theirs.keep(notified)));
        assert_eq!(request.wait(None), Some(Ok(None)));
        request.await_notice();
        assert_eq!(*lock(&called), 1);
        drop(request);
        operation.join().unwrap();
        assert_eq!(requests.spare(), 1, "nobody holds it any more");
        notices.end().expect("it was started").join().unwrap();
    });
}
