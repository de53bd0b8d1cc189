//! The events of a stream as bytes: one JSON object per line, or server-sent events that carry the same objects.

use super::super::answer;
use super::super::json::Object;
use super::super::problem::Fault;
use super::super::standing;
use super::super::wish::Form;
use crate::engine::{Admitted, LeaseNotice, Queued, Refused, Revocation};
use bytes::Bytes;
use weir_kernel::{LeaseEnd, LeaseEndCause, Regime, RequestId};

/// What a stream's events have in common.
#[derive(Clone, Debug)]
pub struct Speaker {
    /// The form.
    pub form: Form,
    /// The pool's name.
    pub pool: String,
    /// The caller's own label.
    pub caller_id: String,
}

impl Form {
    /// What the answer says it is.
    pub const fn content_type(self) -> &'static str {
        match self {
            Form::Ndjson => "application/x-ndjson",
            Form::Sse => "text/event-stream",
        }
    }

    /// A sign of life, which readers pass over.
    pub const fn heartbeat(self) -> Bytes {
        Bytes::from_static(match self {
            Form::Ndjson => b"{\"event\":\"heartbeat\"}\n",
            Form::Sse => b": heartbeat\n\n",
        })
    }

    fn frame(self, name: &str, fill: impl FnOnce(Object) -> Object) -> Bytes {
        let mut text = Vec::with_capacity(384);
        if self == Form::Sse {
            text.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        }
        // Our JSON holds no line end.
        text = fill(Object::continuing(text).text("event", name)).finish();
        text.extend_from_slice(match self {
            Form::Ndjson => b"\n",
            Form::Sse => b"\n\n",
        });
        text.into()
    }
}

impl Speaker {
    /// It waits: its place and the budget that runs.
    pub fn queued(&self, queued: &Queued) -> Bytes {
        self.form
            .frame("queued", |object| standing::queued(object, &self.pool, Some(&self.caller_id), queued))
    }

    /// The pool's regime has changed; how it stands now, where that is known.
    pub fn regime(&self, from: Regime, to: Regime, seq: u64, queued: Option<&Queued>) -> Bytes {
        self.form.frame("regime", |object| {
            let object = object.text("from", from.word()).text("to", to.word()).plain("sequence", seq);
            match queued {
                Some(queued) => standing::standing(object, queued),
                None => object,
            }
        })
    }

    /// It may go on: the same object as the held answer's.
    pub fn admitted(&self, admitted: &Admitted) -> Bytes {
        self.form.frame("admitted", |object| {
            answer::admission_member(object, &self.pool, &self.caller_id, admitted)
        })
    }

    /// It may not: the members of the problem that the held answer would have been.
    pub fn refused(&self, refused: &Refused) -> Bytes {
        self.form
            .frame("refused", |object| answer::refusal_members(object, &self.pool, &self.caller_id, refused))
    }

    /// It was not decided.
    pub fn fault(&self, fault: &Fault) -> Bytes {
        self.form.frame("refused", |object| answer::fault_members(object, fault, Some(&self.caller_id)))
    }

    /// Its lease is taken back: whoever hears this ends the request, and then the stream.
    pub fn revoked(&self, id: RequestId, revocation: &Revocation) -> Bytes {
        self.form.frame("revoked", |object| {
            answer::revoked_members(object, &self.pool, Some(&self.caller_id), id, revocation)
        })
    }

    /// Its lease has ended.
    pub fn ended(&self, id: RequestId, notice: &LeaseNotice) -> Bytes {
        self.form
            .frame("ended", |object| end_members(object.text("id", &format!("{}-{id}", self.pool)), notice))
    }

    /// Its lease ends with the service: so it will stand in the log after the next start.
    pub fn lost(&self, id: RequestId) -> Bytes {
        self.form.frame("ended", |object| {
            object
                .text("id", &format!("{}-{id}", self.pool))
                .text("end", LeaseEnd::Lost.word())
                .text("cause", cause(LeaseEndCause::Restart))
        })
    }

    /// Its lease had ended before, and nobody knows any more how.
    pub fn over(&self, id: RequestId) -> Bytes {
        self.form.frame("ended", |object| object.text("id", &format!("{}-{id}", self.pool)))
    }
}

/// The members that say how a lease ended.
pub fn end_members(object: Object, notice: &LeaseNotice) -> Object {
    object
        .text("end", notice.end.word())
        .text_opt("cause", notice.cause.map(cause))
        .plain("sequence", notice.seq)
        .plain("ranMs", notice.ran.as_millis())
}

/// The word for why a lease ended.
const fn cause(cause: LeaseEndCause) -> &'static str {
    match cause {
        LeaseEndCause::Restart => "restart",
        LeaseEndCause::Timeout => "timeout",
        LeaseEndCause::NotAtEngine => "not-at-engine",
        LeaseEndCause::Cancelled(cause) => cause.word(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::Micros;

    fn speaker(form: Form) -> Speaker {
        Speaker { form, pool: "p".to_owned(), caller_id: "a\nb\"".to_owned() }
    }

    #[test]
    fn both_forms_carry_the_same_object() {
        let notice = LeaseNotice { seq: 9, end: LeaseEnd::Completed, cause: None, ran: Micros(7_900) };
        let object = r#"{"event":"ended","id":"p-3","end":"Completed","sequence":9,"ranMs":7}"#;
        let line = speaker(Form::Ndjson).ended(RequestId(3), &notice);
        assert_eq!(line, format!("{object}\n"));
        let event = speaker(Form::Sse).ended(RequestId(3), &notice);
        assert_eq!(event, format!("event: ended\ndata: {object}\n\n"));
    }

    #[test]
    fn foreign_text_cannot_break_a_line() {
        let fault = speaker(Form::Sse).fault(&Fault::ShuttingDown);
        let text = std::str::from_utf8(&fault).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        let data = text.lines().nth(1).unwrap().strip_prefix("data: ").unwrap();
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["event"], "refused");
        assert_eq!(value["reason"], "rejected-shutting-down");
        assert_eq!((&value["status"], &value["requestId"]), (&503.into(), &"a\nb\"".into()));
    }
}
