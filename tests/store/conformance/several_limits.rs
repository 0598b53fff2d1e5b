//! Tests of several limits, for each way in which a store takes several claims.
//!
//! Promises: P3.

use super::{head_starts::*, several::*, several_contenders::*, several_waiting::*};
use testing::stores::facts;

facts! {
    several_claims_get_a_permit_of_each_limit
    a_claim_refused_by_any_limit_names_it_and_takes_nothing_of_the_others
    a_refused_claim_leaves_the_queue_of_a_wider_limit_alone
    a_permit_of_several_limits_is_released_as_one
    a_clone_ends_at_the_time_that_a_dropped_permit_has_set
    tokens_name_each_limit_and_grow_with_each
    every_limit_counts_the_weight_of_its_own_claim
    no_claims_at_all_are_invalid
    more_claims_than_one_call_serves_are_invalid
    more_units_than_one_call_may_grant_are_invalid
    two_claims_for_one_semaphore_are_invalid
    one_wrong_claim_makes_all_invalid
    a_list_of_one_claim_is_like_a_single_claim
    a_claim_that_waits_keeps_the_narrower_limits_and_joins_the_first_full_queue
    a_claim_goes_from_one_queue_to_the_next
    a_claim_cancelled_at_any_limit_leaves_nothing_behind
    a_wait_that_is_over_names_the_limit_and_leaves_nothing_behind
    a_full_queue_refuses_and_leaves_nothing_behind
    the_queue_of_a_wide_limit_is_in_the_order_of_arrival_across_accounts
    a_head_start_counts_at_every_limit
    fifty_contenders_never_exceed_a_limit_and_leave_nothing_behind
}
