from hypothesis import settings

# A busy machine is no fault of a rule; the tables carry the weight, these look for what they forgot.
settings.register_profile("rules", deadline=None, max_examples=60)
settings.load_profile("rules")
