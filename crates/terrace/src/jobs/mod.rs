//! What background work there is: which jobs run and which wait ([`scheduler`]), what runs, for people
//! ([`job_list`]), what failed and when it is tried again ([`background_errors`]), and what is done before writers need it ([`ahead`]). The work itself
//! is in `background`.

pub(crate) mod ahead;
pub(crate) mod background_errors;
pub(crate) mod job_list;
pub(crate) mod scheduler;

use background_errors::BackgroundErrors;
use job_list::JobList;
use scheduler::Scheduler;

/// The background work of an open store.
#[derive(Default)]
pub(crate) struct Jobs {
    pub scheduler: Scheduler,
    pub list: JobList,
    pub errors: BackgroundErrors,
}
