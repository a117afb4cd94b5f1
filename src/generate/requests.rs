//! Requests of several users: a queue in front of [`Generations`].

use super::{Cancel, Finish, GenerateOptions, Generations, Piece, Summary};
use crate::Session;
use crate::tokenizer::Tokenizer;
use ggml_core::setters;
use ggml_core::{Error, Result};
use std::collections::{HashMap, HashSet, VecDeque};

/// Number of a request, in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Limits of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// Maximum number of requests that wait; further ones are refused.
    pub waiting: usize,
    /// Maximum number of requests of a user that wait or run.
    pub each: usize,
}

setters!(RequestLimits {
    with_waiting => waiting: usize,
    with_each => each: usize,
});

impl Default for RequestLimits {
    /// Returns limits of 1024 requests that wait, of which a user may have all.
    fn default() -> Self {
        RequestLimits { waiting: 1024, each: usize::MAX }
    }
}

/// News of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The next piece of its text.
    Piece(RequestId, Piece),
    /// It has ended: [`Summary::finish`] has the reason, for example that it was cancelled or failed.
    Ended(RequestId, Summary),
}

/// Requests that wait for a sequence of a session or run on one.
///
/// A free sequence goes to the user whose requests were admitted least, and of this user's requests to the oldest. Of the
/// free sequences, a request gets the one that holds most of its prompt from earlier requests; what it does not hold is
/// shared with other sequences as far as they have it ([`Session::keep_common`]), and then computed in pieces beside the
/// steps of the others.
///
/// ```no_run
/// use diptych::generate::{Event, GenerateOptions, RequestLimits, Requests};
/// use diptych::{Result, Session, Tokenizer};
///
/// fn serve(session: &mut Session, tokenizer: &Tokenizer, prompts: &[(u64, Vec<u32>)]) -> Result<()> {
///     let mut requests = Requests::new(session, tokenizer, RequestLimits::default());
///     for (user, prompt) in prompts {
///         requests.submit(*user, prompt, &GenerateOptions::default())?;
///     }
///     while !requests.is_idle() {
///         for event in requests.step()? {
///             match event {
///                 Event::Piece(id, piece) => println!("{id:?}: {}", piece.text),
///                 Event::Ended(id, summary) => println!("{id:?}: {summary}"),
///             }
///         }
///     }
///     Ok(())
/// }
/// ```
pub struct Requests<'a> {
    generations: Generations<'a>,
    limits: RequestLimits,
    waiting: VecDeque<Request>,
    /// Request of each sequence.
    running: Vec<Option<Request>>,
    /// Step in which each sequence was used last.
    used: Vec<u64>,
    steps: u64,
    next: u64,
    /// For each user with requests, how often one was admitted, from the least of the others on.
    admitted: HashMap<u64, u64>,
    /// Admissions of the user that was admitted last.
    turn: u64,
}

struct Request {
    id: RequestId,
    user: u64,
    cancel: Cancel,
    /// The prompt and the options until it runs.
    work: Option<(Vec<u32>, GenerateOptions)>,
}

impl<'a> Requests<'a> {
    /// Creates an empty queue for the sequences of a session.
    pub fn new(session: &'a mut Session, tokenizer: &'a Tokenizer, limits: RequestLimits) -> Requests<'a> {
        let sequences = session.sequences();
        Requests {
            generations: Generations::new(session, tokenizer),
            limits,
            waiting: VecDeque::new(),
            running: (0..sequences).map(|_| None).collect(),
            used: vec![0; sequences],
            steps: 0,
            next: 0,
            admitted: HashMap::new(),
            turn: 0,
        }
    }

    /// Adds a request of a user: a whole prompt, whose beginning earlier requests may have computed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the queue or the user's share of it is full, for a prompt that is empty, has tokens
    /// outside the vocabulary or does not fit into the context, and for invalid options. The queue is then unchanged.
    pub fn submit(&mut self, user: u64, prompt: &[u32], options: &GenerateOptions) -> Result<RequestId> {
        let own = self.waiting.iter().chain(self.running.iter().flatten()).filter(|r| r.user == user).count();
        let limits = [
            ("requests that wait", self.waiting.len(), self.limits.waiting),
            ("requests of the user", own, self.limits.each),
        ];
        for (what, found, most) in limits {
            if found >= most {
                return Err(Error::argument(what, found, format!("fewer than {most} before another one")));
            }
        }
        self.generations.check(prompt, options)?;
        let cancel = options.cancel.clone().unwrap_or_default();
        let options = options.clone().with_cancel(cancel.clone());
        let id = RequestId(self.next);
        self.next += 1;
        let turn = self.turn;
        self.admitted.entry(user).or_insert(turn);
        self.waiting.push_back(Request { id, user, cancel, work: Some((prompt.to_vec(), options)) });
        Ok(id)
    }

    /// Cancels a request; it ends in the next step. Returns false if there is no such request, or it has ended.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let found = self.waiting.iter().chain(self.running.iter().flatten()).find(|request| request.id == id);
        if let Some(request) = found {
            request.cancel.cancel();
        }
        found.is_some()
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of requests that run.
    pub fn running(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// True if no request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running() == 0
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.generations.session()
    }

    /// Admits requests to free sequences, computes a batch for those that run ([`Generations::step`]), and returns
    /// what is new.
    ///
    /// # Errors
    /// Errors of the backend; all running requests then fail, and the next step says so. Those that wait are unchanged.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        self.steps += 1;
        let mut events = Vec::new();
        self.end(&mut events);
        self.drop_cancelled(&mut events);
        self.admit(&mut events);
        if self.running() == 0 {
            return Ok(events);
        }
        for (sequence, piece) in self.generations.step()? {
            let Some(request) = self.running.get(sequence).and_then(Option::as_ref) else { continue };
            self.used[sequence] = self.steps;
            // A piece that cannot be chosen ends its generation, which the summary says.
            if let Ok(piece) = piece {
                events.push(Event::Piece(request.id, piece));
            }
        }
        self.end(&mut events);
        Ok(events)
    }

    /// Ends the requests whose generations have ended.
    fn end(&mut self, events: &mut Vec<Event>) {
        for (sequence, running) in self.running.iter_mut().enumerate() {
            if self.generations.is_running(sequence) {
                continue;
            }
            if let Some(request) = running.take() {
                let summary = self.generations.summary(sequence).cloned().unwrap_or_default();
                events.push(Event::Ended(request.id, summary));
            }
        }
        let users = self.waiting.iter().chain(self.running.iter().flatten()).map(|request| request.user);
        let users: HashSet<u64> = users.collect();
        self.admitted.retain(|user, _| users.contains(user));
    }

    fn drop_cancelled(&mut self, events: &mut Vec<Event>) {
        self.waiting.retain(|request| {
            let cancelled = request.cancel.is_set();
            if cancelled {
                let summary = Summary { finish: Some(Finish::Cancelled), ..Summary::default() };
                events.push(Event::Ended(request.id, summary));
            }
            !cancelled
        });
    }

    /// Starts requests on free sequences.
    fn admit(&mut self, events: &mut Vec<Event>) {
        while self.running.iter().any(Option::is_none) {
            let turn = |request: &Request| self.admitted.get(&request.user).copied().unwrap_or(0);
            let next = self.waiting.iter().enumerate().min_by_key(|(_, request)| (turn(request), request.id));
            let Some(mut request) = next.map(|(index, _)| index).and_then(|index| self.waiting.remove(index))
            else {
                return;
            };
            let Some((prompt, options)) = request.work.take() else { continue };
            let free = (0..self.running.len()).filter(|&sequence| self.running[sequence].is_none());
            let best = free.max_by_key(|&sequence| {
                (self.generations.common(sequence, &prompt), std::cmp::Reverse(self.used[sequence]))
            });
            let Some(sequence) = best else { return };
            if let Some(admitted) = self.admitted.get_mut(&request.user) {
                self.turn = *admitted;
                *admitted += 1;
            }
            match self.generations.continue_with(sequence, &prompt, &options) {
                Ok(_) => self.running[sequence] = Some(request),
                Err(error) => {
                    // Only a device that fails while it restores a checkpoint comes here.
                    tracing::warn!("a request could not start: {error}");
                    let summary = Summary { finish: Some(Finish::Failed), ..Summary::default() };
                    events.push(Event::Ended(request.id, summary));
                }
            }
        }
    }
}

impl Generations<'_> {
    /// Checks a prompt and options.
    fn check(&self, prompt: &[u32], options: &GenerateOptions) -> Result<()> {
        self.session().check_tokens(0, 0, prompt)?;
        super::Writer::new(self.tokenizer, &[], options).map(|_| ())
    }

    /// Returns how many tokens of a prompt a sequence holds.
    fn common(&self, sequence: usize, prompt: &[u32]) -> usize {
        self.session().in_common(sequence, prompt)
    }
}

impl std::fmt::Debug for Requests<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests")
            .field("waiting", &self.waiting.len())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
