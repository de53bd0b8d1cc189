//! Which steps are shown.

use super::error::Failed;
use weir_config::nearest;
use weir_kernel::{Input, RequestId, Step};
use weir_log::describe::{concerns, event_kind, event_kinds, input_kind, input_kinds, same_kind, show_time};
use weir_log::reader::Bound;

/// What is asked for.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// Only this pool.
    #[arg(long)]
    pub pool: Option<String>,

    /// From this sequence, or from this time (2026-11-30T01:00:00Z, 2026-11-30, @ and seconds), on.
    #[arg(long, value_name = "SEQ|TIME")]
    pub from: Option<Bound>,

    /// Up to this sequence or time.
    #[arg(long, value_name = "SEQ|TIME")]
    pub to: Option<Bound>,

    /// Only steps with one of these kinds of input or event: Arrived, Rejected, Dispatched, RegimeChanged, …
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    pub kind: Vec<String>,

    /// Only steps about this request: the id of its answer (default-42), our number (42, the sequence of its arrival)
    /// or the caller's own id.
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,

    /// At most so many steps.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// A kind of input or event, in any spelling.
fn kind(text: &str) -> Result<String, String> {
    let known = || input_kinds().iter().chain(event_kinds()).copied();
    if known().any(|kind| same_kind(kind, text)) {
        return Ok(text.to_owned());
    }
    Err(match nearest(text, known()) {
        Some(near) => format!("there is no such kind of input or event; did you mean {near}?"),
        None => {
            let inputs = input_kinds().join(", ");
            let events = event_kinds().iter().filter(|kind| !kind.starts_with("Restated"));
            let events = events.copied().collect::<Vec<_>>().join(", ");
            format!("there is no such kind of input or event; inputs: {inputs}; events: {events}")
        }
    })
}

/// A range of sequences or times, if its end is not before its beginning.
///
/// # Errors
/// An empty range, with both ends.
pub fn range(from: Option<Bound>, to: Option<Bound>) -> Result<(Bound, Bound), Failed> {
    let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
    let (first, last) = match (from, to) {
        (Bound::Seq(first), Bound::Seq(last)) if first > last => (first.to_string(), last.to_string()),
        (Bound::Time(first), Bound::Time(last)) if first > last => (show_time(first), show_time(last)),
        _ => return Ok((from, to)),
    };
    Err(Failed::Usage(format!("--to {last} is before --from {first}: there is nothing between them")))
}

/// A filter at work: it learns our numbers of the requests that carry the caller's id.
pub struct Sieve<'a> {
    filter: &'a Filter,
    requests: Vec<RequestId>,
}

impl<'a> Sieve<'a> {
    /// Nothing seen yet. The numbers of requests are those of one pool: use one sieve per pool.
    pub fn new(filter: &'a Filter) -> Self {
        let number = filter.request.as_ref().and_then(|id| match id.rsplit_once('-') {
            // An answer's id is `pool-number`; a caller's own id may look like one, and is looked for as well.
            Some((pool, number)) if filter.pool.as_deref().is_none_or(|asked| asked == pool) => {
                number.parse().ok()
            }
            Some(_) => None,
            None => id.parse().ok(),
        });
        Sieve { filter, requests: number.into_iter().map(RequestId).collect() }
    }

    /// Is this step shown?
    pub fn lets_through(&mut self, step: &Step) -> bool {
        if let (Some(id), Input::Arrived(arrival)) = (&self.filter.request, &step.input)
            && arrival.caller_id == *id
        {
            self.requests.push(RequestId(step.seq));
        }
        let asked = |name: &str| self.filter.kind.iter().any(|kind| same_kind(name, kind));
        let kind = self.filter.kind.is_empty()
            || asked(input_kind(&step.input))
            || step.events.iter().any(|event| asked(event_kind(event)));
        let request =
            self.filter.request.is_none() || self.requests.iter().any(|request| concerns(step, *request));
        kind && request
    }
}

impl Filter {
    /// The range of sequences or times.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn range(&self) -> Result<(Bound, Bound), Failed> {
        range(self.from, self.to)
    }

    /// Is every step of the range shown?
    pub fn is_open(&self) -> bool {
        self.kind.is_empty() && self.request.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::{Arrival, Ended, Event, Micros, Termination};

    fn filter(kind: &[&str], request: Option<&str>) -> Filter {
        Filter {
            pool: None,
            from: None,
            to: None,
            kind: kind.iter().map(|kind| (*kind).to_owned()).collect(),
            request: request.map(str::to_owned),
            limit: None,
        }
    }

    fn shown(filter: &Filter) -> Vec<u64> {
        let arrived = |id: &str| Input::Arrived(Arrival { caller_id: id.to_owned(), ..Arrival::default() });
        let ended = |request| {
            let (request, termination) = (RequestId(request), Termination::Natural);
            Input::Ended(Ended { request, termination, usage: None })
        };
        let steps = [arrived("a"), arrived("b"), ended(1), Input::TimePassed, arrived("a"), ended(5)];
        let mut sieve = Sieve::new(filter);
        let steps = steps.into_iter().zip(1..).map(|(input, seq)| Step {
            seq,
            at: Micros(seq),
            input,
            events: if seq == 4 { vec![Event::HoldLifted] } else { Vec::new() },
        });
        steps.filter(|step| sieve.lets_through(step)).map(|step| step.seq).collect()
    }

    #[test]
    fn by_kind_and_by_request() {
        for (kind, request, want) in [
            (&[][..], None, vec![1, 2, 3, 4, 5, 6]),
            (&["arrived"], None, vec![1, 2, 5]),
            (&["hold-lifted", "Ended"], None, vec![3, 4, 6]),
            (&[], Some("a"), vec![1, 3, 5, 6]),
            (&[], Some("2"), vec![2]),
            (&[], Some("default-1"), vec![1, 3]),
            (&["ended"], Some("a"), vec![3, 6]),
        ] {
            assert_eq!(shown(&filter(kind, request)), want, "{kind:?} {request:?}");
        }
    }
}
