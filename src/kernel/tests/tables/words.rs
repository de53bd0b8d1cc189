//! The words of the tables: what a row says as an input, and what was decided as text.

use crate::script::Show;
use std::collections::BTreeMap;
use weir_kernel::*;

/// `250us`, `100ms`, `5s`, `10m`, `1h`, or a bare number of seconds.
pub fn span(text: &str) -> Micros {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" | "" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        other => panic!("{text}: what is {other}?"),
    };
    match number.split_once('.') {
        None => Micros(number.parse::<u64>().unwrap() * factor),
        Some((whole, part)) => {
            let scale = 10_u64.pow(part.len() as u32);
            let part = part.parse::<u64>().unwrap() * factor;
            assert!(part % scale == 0, "{text} is finer than a microsecond");
            Micros(whole.parse::<u64>().unwrap() * factor + part / scale)
        }
    }
}

/// `1.25` as millionths.
pub fn ratio(text: &str) -> Ratio {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let scale = 10_i64.pow(6 - part.len() as u32);
    Ratio(whole.parse::<i64>().unwrap() * 1_000_000 + part.parse::<i64>().unwrap() * scale)
}

/// A command, by words.
pub struct Parts<'a>(Vec<&'a str>);

impl<'a> Parts<'a> {
    pub fn new(command: &'a str) -> Parts<'a> {
        Parts(command.split_whitespace().collect())
    }

    pub fn head(&self) -> &'a str {
        self.0[0]
    }

    pub fn word(&self, at: usize) -> &'a str {
        self.0.get(at).copied().unwrap_or_else(|| panic!("{:?}: word {at} is missing", self.0))
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(|word| word.split_once('='))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key).map(|value| value.parse().unwrap())
    }

    pub fn arrival(&self, at: Micros) -> Arrival {
        let face = match self.get("face").unwrap_or("held") {
            "held" => Face::Held,
            "stream" => Face::Stream,
            "ticket" => Face::Ticket,
            "proxy" => Face::Proxy,
            "closed" => Face::ExtProcClosed,
            "open" => Face::ExtProcOpen,
            "untracked" => Face::Untracked,
            other => panic!("what is the face {other}?"),
        };
        let byte = |text: &str| text.bytes().next().unwrap_or(0);
        let idempotency = self.get("key").map(|key| Idempotency {
            key: [byte(key); 16],
            body: [byte(self.get("body").unwrap_or("b")); 8],
        });
        Arrival {
            caller_id: self.get("caller").unwrap_or(self.word(1)).into(),
            objective: self.get("obj").map(Into::into),
            fairness_id: self.get("flow").unwrap_or_default().into(),
            priority: self.get("prio").map(|value| value.parse().unwrap()),
            bytes: self.number("bytes").unwrap_or(0),
            prompt_tokens: self.number("tokens").map(|tokens| tokens as u32),
            ttl: self.get("ttl").map(span),
            slo_ttft: self.get("slo").map(span),
            received_at: at,
            deadline: self.get("deadline").map(|value| match value.strip_prefix('-') {
                Some(ago) => at.since(span(ago)),
                None => at + span(value),
            }),
            face,
            choose_endpoint: self.0.contains(&"choose"),
            idempotency,
            ..Arrival::default()
        }
    }

    /// `pause`, `resume`, `purge r1`, `purge-flow a 10`, `drain 30s`
    pub fn by_hand(&self, at: Micros, request: impl Fn(&str) -> RequestId) -> Input {
        let action = match self.head() {
            "pause" => AdminAction::Pause,
            "resume" => AdminAction::Resume,
            "purge" => AdminAction::Purge { request: request(self.word(1)) },
            "purge-flow" => {
                let (fairness_id, priority) = (self.word(1).into(), self.word(2).parse().unwrap());
                AdminAction::PurgeFlow { fairness_id, priority }
            }
            "drain" => AdminAction::Drain { until: at + span(self.word(1)) },
            other => panic!("what is {other}?"),
        };
        Input::Admin(Admin { action, by: "ops".into(), why: "a drill".into() })
    }

    /// `flood 500 priority=10 bytes=7`
    pub fn many(&self, at: Micros) -> Input {
        Input::ArrivedMany(ArrivedMany {
            priority: self.get("priority").map_or(0, |text| text.parse().unwrap()),
            count: self.word(1).parse().unwrap(),
            bytes: self.number("bytes").unwrap_or(0),
            since: at,
            received_at: at,
            ..ArrivedMany::default()
        })
    }

    pub fn usage(&self) -> Option<Usage> {
        let (prompt, completion) = self.get("usage")?.split_once('+')?;
        Some(Usage { prompt: prompt.parse().unwrap(), completion: completion.parse().unwrap() })
    }

    pub fn cause(&self) -> Cause {
        match self.0.get(2).copied().unwrap_or("disconnect") {
            "disconnect" => Cause::ClientDisconnect,
            "purge" => Cause::Purged,
            "other" => Cause::Other,
            other => panic!("what is the cause {other}?"),
        }
    }

    /// `objectives critical=10 batch=-10 -old`
    pub fn objectives(&self) -> Input {
        let removed = self.0.iter().filter_map(|word| word.strip_prefix('-')).map(Into::into).collect();
        let set = self.pairs().map(|(name, value)| (name.into(), value.parse().unwrap())).collect();
        Input::ObjectivesChanged(ObjectivesChange { set, removed })
    }

    /// `pool 2 sat=1.2`: so many endpoints, a pushed figure, and metrics that are fresh and idle.
    pub fn pool(&self, state: &State, at: Micros) -> Observation {
        let wanted: u16 = self.word(1).parse().unwrap();
        let mut changes = Vec::new();
        for slot in state.endpoints().map(|e| e.slot).filter(|slot| slot.0 > wanted) {
            changes.push(EndpointChange::Left { slot });
        }
        for slot in (1..=wanted).map(Slot).filter(|slot| state.endpoint_name(*slot).is_none()) {
            changes.push(EndpointChange::Joined { slot, name: format!("e{}", slot.0), role: Role::Decode });
            changes.push(EndpointChange::Sampled { slot, waiting: 0, running: 0, kv: 0 });
        }
        let pushed = self.get("sat").map_or(Pushed::Keep, |figure| Pushed::Pool(ratio(figure)));
        Observation { requested_at: at, changes, pushed }
    }
}

/// `join e1 role=prefill + sample e1 w=3 r=8 kv=0.4 + stale e2 + leave e3`, or `see` for nothing new.
pub fn observation(state: &State, command: &str, at: Micros) -> Observation {
    let mut changes = Vec::new();
    let mut requested_at = at;
    for part in command.split('+').map(str::trim).filter(|part| *part != "see") {
        let parts = Parts::new(part);
        let name = parts.word(1);
        let slot = Slot(name.strip_prefix('e').unwrap().parse().unwrap());
        if let Some(ago) = parts.get("ago") {
            requested_at = at.since(span(ago));
        }
        changes.push(match parts.head() {
            "join" => {
                let role = Role::from_label(parts.get("role").unwrap_or(""));
                EndpointChange::Joined { slot, name: name.into(), role }
            }
            "leave" => EndpointChange::Left { slot },
            "stale" => EndpointChange::Stale { slot },
            "sample" => {
                let before = state.endpoints().find(|e| e.slot == slot).and_then(|e| e.sample);
                let (w, r, kv) = before.unwrap_or_default();
                let now = |key: &str| parts.number(key).unwrap_or(0) as i32;
                let share = parts.get("kv").map_or(0, |text| (ratio(text).0 / 100) as i32);
                EndpointChange::Sampled {
                    slot,
                    waiting: now("w") - w as i32,
                    running: now("r") - r as i32,
                    kv: share - kv as i32,
                }
            }
            other => panic!("what is {other}?"),
        });
    }
    Observation { requested_at, changes, pushed: Pushed::Keep }
}

pub fn short(span: Micros) -> String {
    match span.0 {
        us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

fn hold_words(hold: Hold) -> String {
    match hold {
        Hold::Regime(regime) => format!("regime {regime}"),
        Hold::Band { priority, saturation, ceiling, stale: 0, .. } => {
            format!("band {priority} {saturation}>={ceiling}")
        }
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => {
            format!("band {priority} {saturation}>={ceiling} stale {stale}/{endpoints}")
        }
        Hold::Recovery => "recovery".into(),
        Hold::Paused => "paused".into(),
    }
}

/// What a row compares of one event, if anything.
pub fn outcome_words(
    step: &Step,
    event: &Event,
    names: &BTreeMap<RequestId, &str>,
    show: &[Show],
    state: &State,
) -> Option<String> {
    let why = show.contains(&Show::Why);
    let name = |id: RequestId| names.get(&id).copied().unwrap_or("?");
    let own = name(RequestId(step.seq));
    match event {
        Event::Enqueued(e) if show.contains(&Show::Queued) => {
            let source = match e.budget_source {
                BudgetSource::Global => "global",
                BudgetSource::Band => "band",
                BudgetSource::Header => "header",
            };
            let unknown = if e.objective_unknown { " objective unknown" } else { "" };
            let figures = format!(" ({} {source}{unknown})", short(e.saturation_budget));
            Some(format!("{own}:queued{}", if why { figures } else { String::new() }))
        }
        Event::Rejected(e) => {
            let retry = e.retry_after.map(|s| format!(" retry={s}")).unwrap_or_default();
            let limit = e.limit.filter(|_| why).map(|limit| {
                format!(" ({} {}/{} at {})", limit.which.word(), limit.held, limit.limit, e.saturation)
            });
            let (status, word) = (e.reason.status(), e.reason.word());
            Some(format!("{own}:{status} {word}{retry}{}", limit.unwrap_or_default()))
        }
        Event::Repeated { of, resumed } => {
            Some(format!("{own}:as-{}{}", name(*of), if *resumed { " back" } else { "" }))
        }
        Event::Dispatched(e) => {
            let at = e.endpoint.map(|slot| format!(" e{}", slot.0)).unwrap_or_default();
            let figures =
                if why { format!(" ({} {} {})", e.raw, e.effective, e.ceiling) } else { String::new() };
            Some(format!("{}:admit{at}{figures}", name(e.request)))
        }
        Event::Evicted(e) => {
            let (status, word) = (e.reason.status(), e.reason.word());
            let spent = e.budget.filter(|_| why).map(|b| format!(" ({:?} {})", b.which, short(b.budget)));
            let held = e.held_by.filter(|_| why).map(|hold| format!(" behind {}", hold_words(hold)));
            let cause = e.cause.filter(|_| why).map(|cause| format!(" ({})", cause.word()));
            let all = [spent, cause, held].map(Option::unwrap_or_default).concat();
            Some(format!("{}:{status} {word}{all}", name(e.request)))
        }
        Event::LeaseEnded(e) => {
            let cause = match e.cause {
                None => String::new(),
                Some(LeaseEndCause::Restart) => " restart".into(),
                Some(LeaseEndCause::Timeout) => " timeout".into(),
                Some(LeaseEndCause::NotAtEngine) => " not-at-engine".into(),
                Some(LeaseEndCause::Cancelled(cause)) => format!(" {}", cause.word()),
            };
            Some(format!("{}:{}{cause}", name(e.request), e.end.word()))
        }
        Event::RegimeChanged { to, .. } if show.contains(&Show::Regime) => Some(format!("regime:{to}")),
        Event::Held { by } if show.contains(&Show::Held) => Some(format!("held:{}", hold_words(*by))),
        Event::BandOpened { priority, .. } if show.contains(&Show::Life) => Some(format!("band+{priority}")),
        Event::BandClosed { priority } if show.contains(&Show::Life) => Some(format!("band-{priority}")),
        Event::FlowOpened { flow, priority } if show.contains(&Show::Life) => {
            Some(format!("flow+{}/{priority}", state.flow_name(*flow).unwrap_or("?")))
        }
        Event::FlowClosed { .. } if show.contains(&Show::Life) => Some("flow-".into()),
        Event::RejectedMany(e) => {
            let retry = match e.retry_after {
                [None, None] => String::new(),
                [from, to] => format!(" retry={}..{}", from.unwrap_or(0), to.unwrap_or(0)),
            };
            Some(format!("all:{} {}{retry}", e.reason.status(), e.reason.word()))
        }
        Event::OrderTurned(e) => {
            let word = if e.newest_first { "newest" } else { "oldest" };
            Some(format!("{word} first ({} {} {})", name(e.oldest), short(e.waited), short(e.standing)))
        }
        Event::BoundReached(e) => Some(format!("{}:bound {}", name(e.request), short(e.waited))),
        Event::FoundHopeless(e) => Some(format!(
            "{own}:hopeless {}>{} {}*{}/{}",
            short(e.predicted),
            short(e.left),
            e.ahead,
            short(e.window),
            e.drained
        )),
        Event::Paused => Some("paused".into()),
        Event::Resumed => Some("resumed".into()),
        Event::PurgeBegun { requests } => Some(format!("purge of {requests}")),
        Event::Ignored { .. } => Some("ignored".into()),
        Event::DemandSized(e) => {
            let beside = |what: &str, count: u64| {
                if count > 0 { format!(" {what} {count}") } else { String::new() }
            };
            Some(format!("of {}{}{}", e.demand, beside("natural", e.natural), beside("hidden", e.hidden)))
        }
        Event::ReclamationDecided(e) => Some(format!("for {}: {} of {}", e.demand, e.wanted, e.evictable)),
        Event::RevocationIssued(e) => Some(format!("{}:revoke", name(e.request))),
        Event::RevocationEnded(e) => Some(format!("{}:{} {}", name(e.request), e.end.word(), short(e.took))),
        Event::ConfirmedLate { request, late, .. } => {
            Some(format!("{}:late {}", name(*request), short(*late)))
        }
        Event::Reclaimed(e) => {
            Some(format!("{}:reclaimed {} {}", name(e.request), short(e.after), short(e.took)))
        }
        _ => None,
    }
}
