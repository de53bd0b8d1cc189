//! What a resolver is given: the pools that the caller may see, the arguments, what the parent was answered with, and
//! the bounds of the work.

use crate::events::Found;
use crate::fault::Fault;
use crate::schema::missing;
use crate::values;
use async_graphql::dynamic::{ObjectAccessor, ResolverContext, ValueAccessor};
use async_graphql::{Context, Value};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use weir_kernel::Micros;
use weir_log::describe::parse_time;
use weir_projection::{Found as StateFound, Moment, PoolProjection, Projections, Work};

/// The pool of questions that name none, where there is more than one.
const DEFAULT_POOL: &str = "default";

/// A state of the past, and of which pool.
type LastState = Option<(String, Arc<StateFound>)>;

/// Who asks: the pools that the caller may see (none: all), and how long the work may take.
#[derive(Clone, Debug)]
pub struct Terms {
    /// None: every pool.
    pub pools: Option<BTreeSet<String>>,
    /// Bounds of the work.
    pub work: Work,
    /// The last one that was found: what is in it is asked for right after it.
    state: Arc<Mutex<LastState>>,
}

impl Terms {
    /// For a caller who may see these pools (none: all), with these bounds of the work.
    pub fn new(pools: Option<BTreeSet<String>>, work: Work) -> Terms {
        Terms { pools, work, state: Arc::default() }
    }
}

/// An answer.
#[derive(Debug)]
pub enum Out {
    /// Null.
    None,
    /// A value; its keys are fields of the type.
    Value(serde_json::Value),
    /// Events.
    Events(Vec<Found>),
    /// A page of events, and where the next one begins.
    EventPage(Vec<Found>, Option<String>),
}

impl From<serde_json::Value> for Out {
    fn from(value: serde_json::Value) -> Self {
        Out::Value(value)
    }
}

/// One question of a resolver.
pub struct Ask<'a> {
    args: &'a ObjectAccessor<'a>,
    parent: Option<&'a Value>,
    projections: &'a Arc<Projections>,
    terms: &'a Terms,
    context: &'a Context<'a>,
}

/// What a context carries.
fn carried<'a>(ctx: &Context<'a>) -> Result<(&'a Arc<Projections>, &'a Terms), Fault> {
    let projections = ctx.data::<Arc<Projections>>().map_err(|_| missing("the projections"))?;
    let terms = ctx.data::<Terms>().map_err(|_| missing("the terms of the caller"))?;
    Ok((projections, terms))
}

impl<'a> Ask<'a> {
    /// Of a field.
    ///
    /// # Errors
    /// A mistake of ours.
    pub fn of(ctx: &'a ResolverContext<'a>) -> Result<Ask<'a>, Fault> {
        let (projections, terms) = carried(ctx.ctx)?;
        // Here too, so that no number of small fields goes on when the time is over.
        terms.work.check()?;
        Ok(Ask { args: &ctx.args, parent: ctx.parent_value.as_value(), projections, terms, context: ctx.ctx })
    }

    /// Is the field at the end of this path, from the answer on, asked for?
    pub fn wants(&self, path: &[&str]) -> bool {
        path.iter().fold(self.context.look_ahead(), |at, field| at.field(field)).exists()
    }

    /// The bounds of the work.
    pub fn work(&self) -> &'a Work {
        &self.terms.work
    }

    /// The state of a pool at a moment; found once for all that is asked of it.
    ///
    /// # Errors
    /// As [`PoolProjection::state_at`].
    pub fn state_at(&self, pool: &PoolProjection, moment: Moment) -> Result<Arc<StateFound>, Fault> {
        let mut last = self.terms.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some((name, found)), Moment::Seq(seq)) = (&*last, moment)
            && name == pool.name()
            && found.state.seq() == seq
        {
            return Ok(found.clone());
        }
        // Let go of the one before first: there is never more than one.
        *last = None;
        let found = Arc::new(pool.state_at(moment, self.work())?);
        *last = Some((pool.name().to_owned(), found.clone()));
        Ok(found)
    }

    /// The read models.
    pub fn projections(&self) -> &'a Arc<Projections> {
        self.projections
    }

    /// The pools that the caller may see.
    pub fn pools(&self) -> impl Iterator<Item = &'a Arc<PoolProjection>> + use<'a> {
        let terms = self.terms;
        let sees = move |name: &str| terms.pools.as_ref().is_none_or(|pools| pools.contains(name));
        self.projections.pools().filter(move |pool| sees(pool.name()))
    }

    /// A pool by its name.
    ///
    /// # Errors
    /// There is none, or the caller may not see it.
    pub fn pool_named(&self, name: &str) -> Result<&'a Arc<PoolProjection>, Fault> {
        if let Some(pool) = self.pools().find(|pool| pool.name() == name) {
            return Ok(pool);
        }
        if self.projections.pool(name).is_some() {
            return Err(Fault::Forbidden { pool: name.to_owned() });
        }
        let known = self.pools().map(|pool| pool.name()).collect::<Vec<_>>().join(", ");
        Err(Fault::NoPool { pool: name.to_owned(), known })
    }

    /// The pool of the argument `pool`, or the only one.
    ///
    /// # Errors
    /// As [`Ask::pool_named`].
    pub fn pool(&self) -> Result<&'a Arc<PoolProjection>, Fault> {
        if let Some(name) = self.text("pool")? {
            return self.pool_named(&name);
        }
        let mut pools = self.pools();
        match (pools.next(), pools.next()) {
            (Some(only), None) => Ok(only),
            _ => self.pool_named(DEFAULT_POOL),
        }
    }

    /// The argument, unless it is left out or null.
    pub fn arg(&self, name: &str) -> Option<ValueAccessor<'_>> {
        self.args.get(name).filter(|value| !value.is_null())
    }

    /// A text.
    ///
    /// # Errors
    /// Something else.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, Fault> {
        self.arg(name).map(|value| text_of(name, &value)).transpose()
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// Something else.
    pub fn number(&self, name: &'static str) -> Result<Option<u64>, Fault> {
        self.arg(name).map(|value| number_of(name, &value)).transpose()
    }

    /// How many are asked for; none is allowed.
    ///
    /// # Errors
    /// More than `most`, or below zero.
    pub fn count(&self, name: &'static str, most: usize) -> Result<Option<usize>, Fault> {
        let Some(count) = self.number(name)? else { return Ok(None) };
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(Some(count)),
            _ => {
                let found = format!("{name}: {count}");
                Err(Fault::Limit { code: "PAGE_TOO_LARGE", what: "the page", found, limit: most })
            }
        }
    }

    /// A moment.
    ///
    /// # Errors
    /// Something else.
    pub fn time(&self, name: &'static str) -> Result<Option<Micros>, Fault> {
        self.arg(name).map(|value| time_of(name, &value)).transpose()
    }

    /// The arguments `from` and `to`: the last hour of the pool if they are left out.
    ///
    /// # Errors
    /// Something else than times, or in the wrong order.
    pub fn span(&self, pool: &PoolProjection) -> Result<(Micros, Micros), Fault> {
        let to = self.time("to")?.unwrap_or_else(|| pool.at().at + Micros(1));
        let from = self.time("from")?.unwrap_or(Micros(to.0.saturating_sub(3_600_000_000)));
        if from >= to {
            let found = weir_log::describe::show_time(from);
            let allowed = format!("a moment before `to` ({})", weir_log::describe::show_time(to));
            return Err(Fault::Argument { argument: "from", found, allowed });
        }
        Ok((from, to))
    }

    /// The arguments `time` and `sequence`: the last step that is known if both are left out.
    ///
    /// # Errors
    /// Something else, or both.
    pub fn moment(&self, pool: &PoolProjection) -> Result<Moment, Fault> {
        match (self.time("time")?, self.number("sequence")?) {
            (None, None) => Ok(Moment::Seq(pool.at().seq)),
            (Some(at), None) => Ok(Moment::Time(at)),
            (None, Some(seq)) => Ok(Moment::Seq(seq)),
            (Some(_), Some(seq)) => Err(Fault::Argument {
                argument: "sequence",
                found: seq.to_string(),
                allowed: "either a time or a sequence".to_owned(),
            }),
        }
    }

    /// One of these, by its word.
    ///
    /// # Errors
    /// Something else.
    pub fn one_of<T: Copy + Debug>(&self, name: &'static str, all: &[T]) -> Result<Option<T>, Fault> {
        self.arg(name).map(|value| one_of(name, &value, all)).transpose()
    }

    /// An argument that is an object.
    ///
    /// # Errors
    /// Something else.
    pub fn object(&self, name: &'static str) -> Result<Option<Fields<'_>>, Fault> {
        let Some(value) = self.arg(name) else { return Ok(None) };
        let object = value.object().map_err(|_| wrong(name, &value.as_value().to_string(), "an object"))?;
        Ok(Some(Fields(object)))
    }

    /// A text of what the parent was answered with.
    ///
    /// # Errors
    /// A mistake of ours.
    pub fn of_parent(&self, key: &str) -> Result<&'a str, Fault> {
        match self.parent {
            Some(Value::Object(fields)) => match fields.get(key) {
                Some(Value::String(text)) => Ok(text),
                _ => Err(missing(key)),
            },
            _ => Err(missing(key)),
        }
    }

    /// A number of what the parent was answered with.
    ///
    /// # Errors
    /// A mistake of ours.
    pub fn number_of_parent(&self, key: &str) -> Result<u64, Fault> {
        match self.parent {
            Some(Value::Object(fields)) => match fields.get(key) {
                Some(Value::Number(number)) => number.as_u64().ok_or_else(|| missing(key)),
                _ => Err(missing(key)),
            },
            _ => Err(missing(key)),
        }
    }
}

/// The fields of an argument that is an object.
pub struct Fields<'a>(ObjectAccessor<'a>);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<ValueAccessor<'_>> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text.
    ///
    /// # Errors
    /// Something else.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, Fault> {
        self.get(name).map(|value| text_of(name, &value)).transpose()
    }

    /// A moment.
    ///
    /// # Errors
    /// Something else.
    pub fn time(&self, name: &'static str) -> Result<Option<Micros>, Fault> {
        self.get(name).map(|value| time_of(name, &value)).transpose()
    }

    /// A truth value.
    ///
    /// # Errors
    /// Something else.
    pub fn truth(&self, name: &'static str) -> Result<Option<bool>, Fault> {
        self.get(name)
            .map(|value| {
                let truth = value.boolean();
                truth.map_err(|_| wrong(name, &value.as_value().to_string(), "true or false"))
            })
            .transpose()
    }

    /// Milliseconds.
    ///
    /// # Errors
    /// Something else, or below zero.
    pub fn millis(&self, name: &'static str) -> Result<Option<Micros>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.f64() {
            Ok(millis) if millis >= 0.0 => Ok(Some(Micros((millis * 1_000.0) as u64))),
            Ok(millis) => Err(wrong(name, &millis.to_string(), "milliseconds, 0 or more")),
            Err(_) => Err(wrong(name, &value.as_value().to_string(), "milliseconds, 0 or more")),
        }
    }

    /// Any of these, by their words.
    ///
    /// # Errors
    /// Something else.
    pub fn any_of<T: Copy + Debug>(&self, name: &'static str, all: &[T]) -> Result<Vec<T>, Fault> {
        self.each(name, |value| one_of(name, value, all))
    }

    /// Priorities.
    ///
    /// # Errors
    /// Something else.
    pub fn priorities(&self, name: &'static str) -> Result<Vec<i32>, Fault> {
        let allowed = format!("a whole number from {} to {}", i32::MIN, i32::MAX);
        self.each(name, |value| {
            let priority = value.i64().ok().and_then(|number| i32::try_from(number).ok());
            priority.ok_or_else(|| wrong(name, &value.as_value().to_string(), &allowed))
        })
    }

    /// Every member of a list; one alone stands for a list of it, as the language has it.
    fn each<T>(
        &self,
        name: &'static str,
        read: impl Fn(&ValueAccessor<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        match value.list() {
            Ok(list) => list.iter().map(|one| read(&one)).collect(),
            Err(_) => read(&value).map(|one| vec![one]),
        }
    }
}

/// An argument that cannot be.
pub fn wrong(argument: &'static str, found: &str, allowed: &str) -> Fault {
    Fault::Argument { argument, found: found.to_owned(), allowed: allowed.to_owned() }
}

fn text_of(name: &'static str, value: &ValueAccessor<'_>) -> Result<String, Fault> {
    match value.as_value() {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(wrong(name, &other.to_string(), "a text")),
    }
}

fn number_of(name: &'static str, value: &ValueAccessor<'_>) -> Result<u64, Fault> {
    let number = match value.as_value() {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| wrong(name, &value.as_value().to_string(), "a whole number, 0 or more"))
}

fn time_of(name: &'static str, value: &ValueAccessor<'_>) -> Result<Micros, Fault> {
    let text = text_of(name, value)?;
    parse_time(&text).map_err(|error| wrong(name, &text, &error))
}

fn one_of<T: Copy + Debug>(name: &'static str, value: &ValueAccessor<'_>, all: &[T]) -> Result<T, Fault> {
    let word = match value.as_value() {
        Value::Enum(word) => word.to_string(),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    values::named(all, &word).ok_or_else(|| wrong(name, &word, "one of the words of the schema"))
}
