//! The processors that a thread may run on: one, for who is held to it, or all that the process was given.

use std::io;

/// Holds the calling thread to one of the processors that the process was given: the `number`th from 0, beginning again
/// after the last. Threads that it starts from then on begin there too, until they [`roam`].
///
/// # Errors
/// The system does not tell or set it (it tells of 1,024 processors at most).
pub fn hold(number: usize) -> io::Result<()> {
    system::hold(number)
}

/// Lets the calling thread run on all processors that the process was given. It changes nothing where no thread was
/// held, or where the system refuses.
pub fn roam() {
    system::roam();
}

/// How many processors the process was given. A quota of their time (cgroups) does not change that.
///
/// # Errors
/// As [`hold`].
pub fn places() -> io::Result<usize> {
    system::given().map(|given| given.count() as usize)
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::io;
    use std::sync::OnceLock;

    /// Of the thread that asked first, before anybody was held.
    static GIVEN: OnceLock<CpuSet> = OnceLock::new();

    pub fn given() -> io::Result<CpuSet> {
        match GIVEN.get() {
            Some(given) => Ok(*given),
            None => {
                let seen = sched_getaffinity(None)?;
                Ok(*GIVEN.get_or_init(|| seen))
            }
        }
    }

    pub fn hold(number: usize) -> io::Result<()> {
        let given = given()?;
        let mut places = (0..CpuSet::MAX_CPU).filter(|place| given.is_set(*place));
        let nth = number % (given.count() as usize).max(1);
        let place = places.nth(nth).ok_or_else(|| io::Error::other("the process has no processor"))?;
        let mut one = CpuSet::new();
        one.set(place);
        Ok(sched_setaffinity(None, &one)?)
    }

    pub fn roam() {
        if let Some(given) = GIVEN.get() {
            // It runs where it is, then.
            let _ = sched_setaffinity(None, given);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub enum Never {}

    impl Never {
        pub fn count(&self) -> u32 {
            match *self {}
        }
    }

    pub fn given() -> io::Result<Never> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn hold(_: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn roam() {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn a_thread_is_held_to_one_processor_until_it_roams() {
        let given = sched_getaffinity(None).unwrap();
        assert_eq!(places().unwrap(), given.count() as usize);
        std::thread::spawn(move || {
            for number in 0..2 * places().unwrap() {
                hold(number).unwrap();
                let held = sched_getaffinity(None).unwrap();
                assert_eq!(held.count(), 1);
                let place =
                    (0..1_024).filter(|place| given.is_set(*place)).nth(number % given.count() as usize);
                assert!(held.is_set(place.unwrap()));
                // What it starts would stay where it is.
                let (inherited, free) = std::thread::spawn(|| {
                    let inherited = sched_getaffinity(None).unwrap();
                    roam();
                    (inherited, sched_getaffinity(None).unwrap())
                })
                .join()
                .unwrap();
                assert_eq!((inherited, free), (held, given));
            }
            crate::give_way();
            assert_eq!(sched_getaffinity(None).unwrap(), given, "what can wait goes where there is room");
        })
        .join()
        .unwrap();
    }
}
