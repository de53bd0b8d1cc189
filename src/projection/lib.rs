//! Read models of the decision log: requests, time buckets, regimes, settings, reclamations and episodes of each pool.
//!
//! They are caches. They lie in a sled database of their own (`DATA/projections`), are folded from durable batches by a
//! thread of their own, record how far they are, survive a kill at any instant, and can be deleted and folded again at
//! any time; a broken one can harm neither log nor kernel. Rows of requests are written once, at their end, many to a
//! chunk with a zone map; buckets once, when they are over.
//!
//! Not here: decisions (the kernel), the log itself (`weir-log`), and how questions are put (`weir-graphql`).

mod anew;
mod arrival;
mod ask;
mod bucket;
mod chunk;
mod commit;
mod db;
mod episode;
mod error;
mod fold;
mod follow;
mod ids;
mod meter;
mod next;
mod note;
mod pool;
mod query;
mod recent;
mod record;
mod retain;
mod row;
mod source;
mod work;

pub use anew::Anew;
pub use ask::{Found, Grain, Moment};
pub use bucket::{Bucket, COARSE, Cell, CellKey, FINE, Level, OTHER, Standing, Waits};
pub use db::FORMAT;
pub use episode::{Episode, EpisodeKind};
pub use error::{ProjectionError, Spot, Stopped};
pub use follow::{DIRECTORY, Followers, Projections};
pub use next::After;
pub use note::{Kinds, Note};
pub use pool::{PoolProjection, Position};
pub use query::{Filter, Key, Order, Page, Rows};
pub use record::{Decided, PolicyBegan, RegimeBegan, Revocation};
pub use row::{End, Finish, Lease, Queue, Row};
pub use source::{Feed, Source};
pub use work::Work;
