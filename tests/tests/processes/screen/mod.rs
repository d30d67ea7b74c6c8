//! What agents' terminals show, to people who look and to hostd.

mod capture;
