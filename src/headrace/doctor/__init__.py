"""Every file of a job and of topics looked at: what is damaged, what it means, what can be done."""
