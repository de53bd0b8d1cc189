//! The way out of one stream: its session says what goes out, its connection takes that.
//!
//! In place of a channel, of which the first block alone (32 answers) is 6 kB that every stream would hold while its
//! request waits. The session has a task of its own all the same: a connection asks for nothing while its other side
//! takes nothing, and how the stream ends has to be noticed then too.

use super::message::ProcessingResponse;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio_stream::Stream;
use tonic::Status;

/// Answers of one stream that may wait for Envoy to read them.
const WAITING_MAX: usize = 4;

/// Nobody hears us any more.
#[derive(Debug)]
pub struct Gone;

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Box<ProcessingResponse>>,
    /// Nobody takes anything any more.
    closed: bool,
    /// Nobody says anything any more.
    over: bool,
    taker: Option<Waker>,
    teller: Option<Waker>,
}

/// Where a session says what goes out.
#[derive(Debug)]
pub struct Out(Option<Arc<Mutex<Lane>>>);

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Out {
    /// To nobody, who takes everything.
    pub fn nowhere() -> Self {
        Out(None)
    }

    /// Puts an answer behind the others, once there is room for it.
    ///
    /// # Errors
    /// Nobody takes it.
    pub async fn tell(&self, answer: ProcessingResponse) -> Result<(), Gone> {
        let Some(lane) = &self.0 else { return Ok(()) };
        let mut answer = Some(Box::new(answer));
        poll_fn(|context| {
            let mut lane = lock(lane);
            if lane.closed {
                return Poll::Ready(Err(Gone));
            }
            if lane.waiting.len() >= WAITING_MAX {
                lane.teller = Some(context.waker().clone());
                return Poll::Pending;
            }
            lane.waiting.extend(answer.take());
            let taker = lane.taker.take();
            drop(lane);
            wake(taker);
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Some(lane) = &self.0 {
            let mut lane = lock(lane);
            lane.over = true;
            let taker = lane.taker.take();
            drop(lane);
            wake(taker);
        }
    }
}

/// What goes out on a stream. Once it is dropped, whoever has something to say is told so.
#[derive(Debug)]
pub struct Answers(Arc<Mutex<Lane>>);

impl Answers {
    /// Of the session that this makes of its way out.
    pub fn of<F: Future<Output = ()> + Send + 'static>(session: impl FnOnce(Out) -> F) -> Self {
        let lane = Arc::new(Mutex::new(Lane::default()));
        // Boxed: the runtime moves a task's future when it begins and when it ends, and this one is large.
        tokio::spawn(Box::pin(session(Out(Some(Arc::clone(&lane))))));
        Answers(lane)
    }
}

impl Stream for Answers {
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut lane = lock(&self.0);
        let Some(answer) = lane.waiting.pop_front() else {
            if lane.over {
                return Poll::Ready(None);
            }
            lane.taker = Some(context.waker().clone());
            return Poll::Pending;
        };
        let teller = lane.teller.take();
        drop(lane);
        wake(teller);
        Poll::Ready(Some(Ok(*answer)))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let mut lane = lock(&self.0);
        lane.closed = true;
        let teller = lane.teller.take();
        drop(lane);
        wake(teller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::ext_proc_grpc::message::Answer;
    use crate::gateway::ext_proc_grpc::message::TrailersResponse;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio_stream::StreamExt;

    fn answer() -> ProcessingResponse {
        ProcessingResponse {
            response: Some(Answer::ResponseTrailers(TrailersResponse {})),
            ..ProcessingResponse::default()
        }
    }

    /// As many wait as may, and no more; what was said before the end is taken.
    #[tokio::test]
    async fn answers_wait_until_they_are_taken() {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
        let mut answers = Answers::of(|out| async move {
            for _ in 0..9 {
                out.tell(answer()).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        for taken in 0..=5 {
            while said.load(Ordering::SeqCst) < taken + WAITING_MAX {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
            assert_eq!(said.load(Ordering::SeqCst), taken + WAITING_MAX);
            assert_eq!(answers.next().await.unwrap().unwrap(), answer());
        }
        for _ in 0..3 {
            assert_eq!(answers.next().await.unwrap().unwrap(), answer());
        }
        assert!(answers.next().await.is_none());
    }

    /// Whether or not it waits for room.
    #[tokio::test]
    async fn a_session_that_nobody_hears_is_told_so() {
        for taken in [0, 2, 7] {
            let (ended_to, ended) = tokio::sync::oneshot::channel();
            let mut answers = Answers::of(|out| async move {
                while out.tell(answer()).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                ended_to.send(()).unwrap();
            });
            for _ in 0..taken {
                answers.next().await.unwrap().unwrap();
            }
            drop(answers);
            ended.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_session_that_fails_ends_its_stream() {
        let mut answers = Answers::of(|out| async move {
            out.tell(answer()).await.unwrap();
            panic!("as a fault of ours would");
        });
        assert!(answers.next().await.unwrap().is_ok());
        assert!(answers.next().await.is_none());
    }
}
