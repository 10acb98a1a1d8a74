from hypothesis import settings

# A busy machine is no fault of a rule.
settings.register_profile("rules", deadline=None, max_examples=60)
settings.load_profile("rules")
