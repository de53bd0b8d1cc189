//! `/graphql` from outside, beyond plain questions: who may ask, odd and hostile questions, stock clients, a browser.

mod allowed;
mod clients;
mod devtools;
mod explorer;
mod hostile;
mod odd;
